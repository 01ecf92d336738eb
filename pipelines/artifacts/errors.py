"""How a job may end badly; each class carries the exit code of the command.

A plain ValueError is an error in what the user gave (exit code 2); see `pipelines.cli.exit_codes`.
"""


class IncompleteArtifact(RuntimeError):
    """Rows are missing; nothing was published."""

    exit_code = 1


class PartialWork(RuntimeError):
    """The run ended early; finished work is saved and the same command continues from it."""

    exit_code = 3


class GateFailed(RuntimeError):
    """The result misses a limit the user set; nothing was published."""

    exit_code = 4


class TargetMissed(GateFailed):
    """No search effort reaches the requested recall."""
