"""Errors of a corpus. Each carries as fields what its message is made of.

The arguments of the constructor are what pickle keeps, so that errors of tasks reach the driver.
"""

from sbert_core.errors import InvalidInput


class CorruptFile(ValueError):
    """A file that cannot be read.

    root, path: of the storage and of the file in it. line: from 1 on, in a text file.
    """

    def __init__(self, root: str, path: str, reason: str, line: int | None = None) -> None:
        super().__init__(root, path, reason, line)
        self.root, self.path, self.reason, self.line = root, path, reason, line

    def __str__(self) -> str:
        where = "" if self.line is None else f"line {self.line:,}: "
        return (
            f"{self.root}/{self.path} cannot be read: {where}{self.reason}; repair or remove it, "
            "or leave it out with --skip-corrupt"
        )


class ChangedFile(ValueError):
    """A file that is gone, or not the one that was embedded. root, path: of storage and file."""

    def __init__(self, root: str, path: str, reason: str) -> None:
        super().__init__(root, path, reason)
        self.root, self.path, self.reason = root, path, reason

    def __str__(self) -> str:
        return f"{self.root}/{self.path} {self.reason}"


class EmptyCorpus(ValueError):
    """A place without data files. expected: the suffixes that are read."""

    def __init__(self, place: str, expected: str) -> None:
        super().__init__(place, expected)
        self.place, self.expected = place, expected

    def __str__(self) -> str:
        return f"corpus {self.place} holds no data file; expected names that end in {self.expected}"


class InvalidPattern(ValueError):
    """A glob with a malformed set of characters."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__(pattern, reason)
        self.pattern, self.reason = pattern, reason

    def __str__(self) -> str:
        return (
            f"{self.pattern!r} is not a pattern of names: {self.reason}; write sets of characters "
            "as [abc] or [a-z], and a [ that is meant as itself as [[]"
        )


class InvalidFileName(ValueError):
    """A file whose name is not UTF-8, so that no table and no manifest can hold it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (
            f"the name {self.path!r} is not UTF-8, so no table can hold it; rename the file, or "
            "leave it out of the corpus"
        )


class NotACorpus(ValueError):
    """An artifact of another kind in the place of a corpus. root: of the artifact."""

    def __init__(self, place: str, root: str, kind: str) -> None:
        super().__init__(place, root, kind)
        self.place, self.root, self.kind = place, root, kind

    def __str__(self) -> str:
        return (
            f"corpus {self.place} is an artifact that holds {self.kind}; give the texts it was "
            "made from, or, to read its files as a table, the folder that sbert path "
            f"{self.root} prints"
        )


class MixedGenerations(ValueError):
    """A corpus that takes in an artifact, and with it rows of two of its generations."""

    def __init__(self, place: str, artifact: str) -> None:
        super().__init__(place, artifact)
        self.place, self.artifact = place, artifact

    def __str__(self) -> str:
        return (
            f"corpus {self.place} holds the artifact {self.artifact}, and with it rows of two "
            "generations; give a folder or a glob without it, or the artifact alone"
        )


class MissingFile(ValueError):
    """A published corpus that lacks a file of its manifest."""

    def __init__(self, root: str, path: str, manifest: str) -> None:
        super().__init__(root, path, manifest)
        self.root, self.path, self.manifest = root, path, manifest

    def __str__(self) -> str:
        return (
            f"corpus {self.root} lacks {self.path}, which its {self.manifest} lists; remove the "
            "folder and apply again"
        )


class InvalidCarry(ValueError):
    """A value of --carry that cannot be published. word: the value; name: its published name."""

    def __init__(self, word: str, name: str, reason: str) -> None:
        super().__init__(word, name, reason)
        self.word, self.name, self.reason = word, name, reason

    def __str__(self) -> str:
        return f"carry {self.word!r}{self.reason}"


class InvalidCondition(ValueError):
    """Text that is not a condition on rows. reason: empty where only the syntax is known bad."""

    def __init__(self, text: str, reason: str, remedy: str) -> None:
        super().__init__(text, reason, remedy)
        self.text, self.reason, self.remedy = text, reason, remedy

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"condition {self.text!r} is not understood{reason}; {self.remedy}"


class IncompatibleTypes(ValueError):
    """A condition that compares a column with a value of another type.

    what: the file and option. types: of the columns, as Arrow spells them.
    """

    def __init__(self, what: str, text: str, types: dict[str, str], reason: str) -> None:
        super().__init__(what, text, types, reason)
        self.what, self.text, self.types, self.reason = what, text, types, reason

    def __str__(self) -> str:
        types = ", ".join(f"{name} is {kind}" for name, kind in self.types.items())
        return (
            f"{self.what} {self.text!r} does not fit the columns ({types}): {self.reason}; compare "
            "text with quoted text, numbers with numbers"
        )


class InvalidColumn(ValueError):
    """A column that a file lacks or has several times. names: the columns of the file."""

    def __init__(self, path: str, column: str, names: tuple[str, ...]) -> None:
        super().__init__(path, column, names)
        self.path, self.column, self.names = path, column, names

    def __str__(self) -> str:
        if self.column in self.names:
            return f"{self.path} has several columns {self.column!r}; rename all but one"
        found = ", ".join(sorted(set(self.names)))
        return f"{self.path} has no column {self.column!r}; it has: {found}"


class MissingId(InvalidInput):
    """A row without an id."""

    def __init__(self, path: str, row: int) -> None:
        super().__init__(path, row)
        self.path, self.row = path, row

    def __str__(self) -> str:
        return f"row {self.row} of {self.path} has no id; fill it in, or use --id content"


class RepeatedId(InvalidInput):
    """An id of two rows. places: file and row of each; row None in a file that is unchanged."""

    def __init__(self, id: str | int | None, places: tuple[tuple[str, int | None], ...]) -> None:
        super().__init__(id, places)
        self.id, self.places = id, places

    def __str__(self) -> str:
        name = "?" if self.id is None else repr(self.id)
        rows = " and ".join(
            f"{path} (unchanged)" if row is None else f"{path} row {row}"
            for path, row in self.places
        )
        return (
            f"id {name} occurs twice: {rows}; make ids unique, name another --id-column, or use "
            "--id content"
        )
