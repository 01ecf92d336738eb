"""Errors that decide whether a repeated command can succeed."""


class TransientError(ValueError):
    """Temporary failure (network, store, damaged file): retrying may succeed; never cached."""

    exit_code = 2


class InvalidInput(ValueError):
    """Input and options alone cause this failure: the same command fails in the same way."""

    exit_code = 2
