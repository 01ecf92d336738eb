"""Files of a folder on a local disk."""

import contextlib
import fcntl
import io
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import BinaryIO, TypeVar

import pyarrow as pa

from sbert_core.storage.base import LOCK, BusyError, ConflictError, NameOutsideStorage, Scope, Stat
from sbert_core.storage.scope import AllFiles
from sbert_core.storage.walk import NOT_A_FILE, stat_or_none, walk

Made = TypeVar("Made")

TEMPORARY = "_work/tmp"
COPY_BYTES = 8 * 2**20


class LocalStorage:
    """A folder. Versions are modification times; the lock is a flock, released at process exit."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.uri = str(self.root)

    def path(self, name: str) -> Path:
        """The path of a file; NameOutsideStorage for a name that leads out of the folder.

        Names come from manifests, which others may have written.
        """
        if name.startswith("/") or "\0" in name or ".." in PurePosixPath(name).parts:
            raise NameOutsideStorage(self.uri, name)
        return self.root / name

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with self.open(name) as file:
            file.seek(start)
            return file.read(length)

    def buffer(self, name: str) -> pa.Buffer:
        """The file memory-mapped: taking a few rows of many costs a few pages."""
        with self.open(name) as file:
            if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
                return pa.py_buffer(b"")
        return pa.memory_map(str(self.path(name))).read_buffer()

    def open(self, name: str) -> BinaryIO:
        path = self.path(name)
        try:
            return path.open("rb")
        except FileNotFoundError:
            raise FileNotFoundError(f"{path} does not exist") from None
        except OSError as error:
            if error.errno in NOT_A_FILE:
                raise ValueError(f"{path} is not a file: {error.strerror}") from None
            raise

    def stat(self, name: str) -> Stat | None:
        found = stat_or_none(self.path(name))
        return None if found is None else Stat(name, found.st_size, str(found.st_mtime_ns))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        self.path(prefix)
        return walk(self.root, prefix.strip("/"), AllFiles())

    def find(self, scope: Scope) -> Iterator[Stat]:
        return walk(self.root, "", scope)

    def put(self, name: str, data: bytes) -> None:
        self._put(name, io.BytesIO(data))

    def put_file(self, name: str, source: Path) -> None:
        """Rename the file if it is on the same disk, else copy its contents."""
        target = self.path(name)
        _make_folder(target.parent)
        with source.open("rb") as file:
            if source.stat().st_dev != target.parent.stat().st_dev:
                self._put(name, file)
                return
            os.fsync(file.fileno())
        _move(source, target)

    def work_folder(self) -> TemporaryDirectory[str]:
        """A folder on the disk of the output, which may hold more than /tmp can."""
        return self._temporary(lambda folder: TemporaryDirectory(dir=folder))

    def _put(self, name: str, source: BinaryIO) -> None:
        target = self.path(name)
        _make_folder(target.parent)
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        file = self._temporary(lambda folder: (folder / name).open("wb"))
        temporary = Path(file.name)
        try:
            with file:
                shutil.copyfileobj(source, file, COPY_BYTES)
                file.flush()
                os.fsync(file.fileno())
            _move(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
            _remove_empty(temporary.parent, self.root)

    def _temporary(self, make: Callable[[Path], Made]) -> Made:
        """Call `make` with the folder for temporary files.

        Repeated if another writer removes the empty folder in between.
        """
        folder = self.root / TEMPORARY
        while True:
            _make_folder(folder)
            try:
                return make(folder)
            except FileNotFoundError:
                continue

    def put_if(self, name: str, data: bytes, version: str | None) -> None:
        """Check and write: atomic only among writers that hold the lock."""
        found = self.stat(name)
        if (found and found.version) != version:
            raise ConflictError(f"{self.uri}/{name} was written by another run meanwhile")
        self.put(name, data)
        handle = os.open(self.root, os.O_RDONLY)  # fsync of the folder makes the rename durable
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def link(self, source: str, target: str) -> None:
        place = self.path(target)
        _make_folder(place.parent)
        place.unlink(missing_ok=True)
        try:
            place.hardlink_to(self.path(source))
        except OSError:  # a file system without hard links
            self.put(target, self.read(source))

    def carry_over(self, source: str, target: str) -> str:
        self.link(source, target)
        return target

    def delete_files(self, names: Iterable[str]) -> None:
        """Remove files, and the folders that they leave empty."""
        for name in names:
            path = self.path(name)
            path.unlink(missing_ok=True)
            _remove_empty(path.parent, self.root)

    def delete(self, names: Iterable[str]) -> None:
        """Files and whole folders."""
        for name in names:
            _remove(self.path(name))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        if self.root.exists() and not self.root.is_dir():
            raise ValueError(f"{self.uri} is a file; give a folder, new or existing")
        is_new = not self.root.exists()
        handle = self._acquire_lock()
        try:
            yield
        except ValueError:
            # Refused before anything was saved: remove the folder this run made. Saved files may be
            # the work of hours, so they stay, whatever the reason.
            if is_new and all(stat.name == LOCK for stat in self.list()):
                _remove(self.root)
            raise
        finally:
            os.close(handle)

    def _acquire_lock(self) -> int:
        """A file handle that holds the lock while it is open; BusyError if another one does."""
        while True:
            self.root.mkdir(parents=True, exist_ok=True)
            try:
                handle = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:  # a refused run has just removed the folder
                continue
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise BusyError(
                    f"{self.uri} is being written by another run; wait for it to end"
                ) from None
            # The file may have been removed since it was opened; then the lock guards nothing.
            if _is_at(handle, self.root / LOCK):
                return handle
            os.close(handle)


def _move(source: Path, target: Path) -> None:
    try:
        source.replace(target)
    except IsADirectoryError:
        raise ValueError(f"{target} is a folder, a file belongs there; move it away") from None


def _make_folder(folder: Path) -> None:
    """Make the folder and those above it, although other writers may remove empty ones."""
    while True:
        try:
            return folder.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:
            continue
        except FileExistsError:
            # What was there a moment ago may have been such a folder.
            if os.path.lexists(folder) and not folder.is_dir():
                raise


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder and those above it up to the root, as long as they are empty."""
    with contextlib.suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for entry in path.iterdir():
            _remove(entry)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
