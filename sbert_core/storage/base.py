"""What every store of files can do."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Protocol, Self

import pyarrow as pa

LOCK = "_lock"


class BusyError(Exception):
    """Another run holds the output."""


class ConflictError(Exception):
    """Somebody else wrote the file since it was read."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A file: its name below the root, and what tells one version of it from another."""

    name: str
    size: int
    version: str


class Scope(Protocol):
    """Files of a folder and of folders below. Equal scopes mean the same files."""

    @property
    def is_deep(self) -> bool:
        """May the files lie any number of folders below?"""
        ...

    def has(self, file: str) -> bool:
        """Is a file of this name in the folder meant?"""
        ...

    def inside(self, folder: str) -> Self | None:
        """What is meant in a folder of this name; None if nothing is."""
        ...


class Storage(Protocol):
    """Whole files by relative name."""

    uri: str

    def read(self, name: str) -> bytes: ...

    def read_range(self, name: str, start: int, length: int) -> bytes: ...

    def buffer(self, name: str) -> pa.Buffer: ...

    def open(self, name: str) -> BinaryIO: ...

    def stat(self, name: str) -> Stat | None: ...

    def list(self, prefix: str = "") -> Iterator[Stat]: ...

    def find(self, scope: Scope) -> Iterator[Stat]:
        """Files of a scope, looking into no folder where it means nothing."""
        ...

    def put(self, name: str, data: bytes) -> None: ...

    def put_file(self, name: str, source: Path) -> None:
        """Give a local file away; it may be gone afterwards."""

    def work_folder(self) -> TemporaryDirectory:
        """A local folder to write such files in."""
        ...

    def put_if(self, name: str, data: bytes, version: str | None) -> None: ...

    def link(self, source: str, target: str) -> None: ...

    def delete(self, names: Iterable[str]) -> None: ...

    def lock(self) -> AbstractContextManager[None]: ...
