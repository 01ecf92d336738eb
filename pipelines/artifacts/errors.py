"""How a job ends badly: classes that carry the exit code of the command and the facts of the case.

A plain ValueError, mapped by `pipelines.cli.run_job`, means that the user's
input is wrong (exit code 2).
"""


class IncompleteArtifact(RuntimeError):
    """Rows in and rows out differ; nothing was published."""

    exit_code = 1

    def __init__(self, place: str, rows_found: int, rows_expected: int) -> None:
        super().__init__(
            f"{place}: {rows_found} of {rows_expected} rows are accounted for; nothing was "
            "published, repeat the command"
        )
        self.place, self.rows_found, self.rows_expected = place, rows_found, rows_expected


class PartialWork(RuntimeError):
    """The run ended early; finished work is saved and the same command continues from it."""

    exit_code = 3


class GateFailed(RuntimeError):
    """The result misses a limit the user set; nothing was published."""

    exit_code = 4


class TargetMissed(GateFailed):
    """No search effort reaches the requested recall."""


class NotAnArtifact(FileNotFoundError):
    """The place holds no manifest."""

    exit_code = 2

    def __init__(self, place: str, manifest: str) -> None:
        super().__init__(f"{place} holds no published artifact (no {manifest})")
        self.place = place


class ScatteredArtifact(ValueError):
    """Data files in the folders of several generations where one folder is needed."""

    exit_code = 2

    def __init__(self, place: str, num_generations: int) -> None:
        super().__init__(
            f"{place} has its data files in the folders of {num_generations} generations, so that "
            "of the last one alone is not the artifact; sbert path --files prints all files, "
            "sbert path --materialize copies them into one folder"
        )
        self.place, self.num_generations = place, num_generations


class BrokenArtifact(ValueError):
    """A manifest that cannot be one, or that does not fit its files."""

    exit_code = 2

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place} is broken or of another version ({reason}); make the artifact again"
        )
        self.place, self.reason = place, reason


class NewerFormat(ValueError):
    """A manifest that a later version of this program wrote."""

    exit_code = 2

    def __init__(self, place: str, found: int, known: int) -> None:
        super().__init__(
            f"{place} has manifest format {found}, this version reads up to {known}; upgrade "
            "sbert-mill, or write to another --out"
        )
        self.place, self.found, self.known = place, found, known


class WrongKind(ValueError):
    """An artifact of one kind where another is needed."""

    exit_code = 2

    def __init__(self, place: str, found: str, wanted: str, remedy: str) -> None:
        super().__init__(f"{place} holds {found}, not {wanted}; {remedy}")
        self.place, self.found, self.wanted = place, found, wanted
