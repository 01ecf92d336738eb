"""Errors that mean more than their words."""


class Unsettled(ValueError):
    """Bad luck rather than bad input: the same command may do better in an hour."""


class InputRefused(ValueError):
    """Bad input, told by the input and the options alone: the same command ends the same way."""
