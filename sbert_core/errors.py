"""Errors that mean more than their words."""


class Unsettled(ValueError):
    """Bad luck rather than bad input: the same command may do better in an hour."""
