"""The interface of a store of files, and its errors."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Protocol, Self

import pyarrow as pa

LOCK = "_lock"


class BusyError(Exception):
    """Another run holds the lock of the output."""

    exit_code = 5


class NameOutsideStorage(ValueError):
    """A file name that leads out of the folder of a storage."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__(place, name)  # the arguments are what pickle keeps
        self.place, self.name = place, name

    def __str__(self) -> str:
        return f"{self.place}: {self.name!r} is not a file name inside this folder; not opened"


class UnsupportedStore(ValueError):
    """A URI of a scheme that cannot be opened."""

    def __init__(self, place: str, scheme: str) -> None:
        super().__init__(place, scheme)  # the arguments are what pickle keeps
        self.place, self.scheme = place, scheme

    def __str__(self) -> str:
        return (
            f"{self.place}: stores of kind {self.scheme}:// are not supported; use a path or s3://"
        )


class ConflictError(Exception):
    """The file was written since the version that the caller has seen."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A file: name below the root, bytes, and a version that changes with every write."""

    name: str
    size: int
    version: str


class Scope(Protocol):
    """Selects files of a folder and of folders below. Equal scopes select the same files."""

    @property
    def is_deep(self) -> bool:
        """Whether files any number of folders below may be selected."""
        ...

    def has(self, file: str) -> bool:
        """Whether a file of this name directly in the folder is selected."""
        ...

    def inside(self, folder: str) -> Self | None:
        """The scope of a subfolder of this name; None if it selects nothing there."""
        ...


class Storage(Protocol):
    """Whole files by their name below `uri`.

    A missing file is a FileNotFoundError, one that may not be read a PermissionError.
    """

    uri: str

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        ...

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Bytes start..start+length of a file."""
        ...

    def buffer(self, name: str) -> pa.Buffer:
        """All bytes of a file, memory-mapped where the store can."""
        ...

    def open(self, name: str) -> BinaryIO:
        """A seekable reader of a file."""
        ...

    def stat(self, name: str) -> Stat | None:
        """Size and version of a file; None if it does not exist."""
        ...

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """All files below a folder, in any order."""
        ...

    def find(self, scope: Scope) -> Iterator[Stat]:
        """Files of a scope; folders in which it selects nothing are not listed."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write a file atomically."""
        ...

    def put_file(self, name: str, source: Path) -> None:
        """Move or copy a local file here atomically; `source` may be gone afterwards."""

    def work_folder(self) -> TemporaryDirectory[str]:
        """A local folder to write files in before `put_file`; removed on exit."""
        ...

    def put_if(self, name: str, data: bytes, version: str | None) -> None:
        """Write if the file has this version (None: if it is new); ConflictError otherwise."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, by a hard link or a copy."""
        ...

    def carry_over(self, source: str, target: str) -> str:
        """Make a file part of a newer generation without a copy.

        The name it has there: `target`, a hard link, or `source` in a store without links.
        """
        ...

    def delete_files(self, names: Iterable[str]) -> None:
        """Remove files, many with one request where the store can; missing ones do not matter."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove files, and everything below folders of these names."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Hold the only right to write; BusyError if another run has it."""
        ...
