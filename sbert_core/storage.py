"""Files of an artifact or a corpus, on a local disk or in an object store, behind one interface.

In:  a folder or an s3:// URI.
Out: Storage: whole files by relative name. A write is there whole or not at all; a conditional
     write succeeds only over the version its writer has seen; one writer holds the lock.

Lowest of the layers, since actors, tasks and jobs all read and write. Credentials come from the
usual environment variables (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL ...) and stay there.
"""

import contextlib
import fcntl
import io
import json
import logging
import os
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError
from obstore.store import S3Store

log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
LOCK = "_lock"
TEMPORARY = "_work/tmp"
COPY_BYTES = 8 * 2**20


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


class Storage(Protocol):
    """Whole files by relative name."""

    uri: str

    def read(self, name: str) -> bytes: ...

    def read_range(self, name: str, start: int, length: int) -> bytes: ...

    def buffer(self, name: str) -> pa.Buffer: ...

    def open(self, name: str) -> BinaryIO: ...

    def stat(self, name: str) -> Stat | None: ...

    def list(self, prefix: str = "") -> Iterator[Stat]: ...

    def put(self, name: str, data: bytes) -> None: ...

    def put_file(self, name: str, source: Path) -> None: ...

    def put_if(self, name: str, data: bytes, version: str | None) -> None: ...

    def link(self, source: str, target: str) -> None: ...

    def delete(self, names: Iterable[str]) -> None: ...

    def lock(self) -> AbstractContextManager[None]: ...


def storage_at(place: str | Path) -> Storage:
    """The storage a path or URI names."""
    text = str(place)
    if text.startswith("s3://"):
        return ObjectStorage(text)
    if "://" in text:
        scheme = text.partition("://")[0]
        raise ValueError(
            f"{text}: stores of kind {scheme}:// are not supported; use a path or s3://"
        )
    return LocalStorage(Path(text))


class LocalStorage:
    """A folder. Versions are modification times; the lock is the kernel's and dies with us."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.uri = str(self.root)

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with (self.root / name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def buffer(self, name: str) -> pa.Buffer:
        """The file mapped, not read: taking a few rows of many costs a few pages."""
        return pa.memory_map(str(self.root / name)).read_buffer()

    def open(self, name: str) -> BinaryIO:
        return (self.root / name).open("rb")

    def stat(self, name: str) -> Stat | None:
        try:
            found = (self.root / name).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stat(name, found.st_size, str(found.st_mtime_ns))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        for folder, _, files in os.walk(self.root / prefix, followlinks=True):
            for file in files:
                name = (Path(folder) / file).relative_to(self.root).as_posix()
                if (stat := self.stat(name)) is not None:
                    yield stat

    def put(self, name: str, data: bytes) -> None:
        self._put(name, io.BytesIO(data))

    def put_file(self, name: str, source: Path) -> None:
        """The file's contents, without holding them in memory."""
        with source.open("rb") as file:
            self._put(name, file)

    def _put(self, name: str, source: BinaryIO) -> None:
        target = self.root / name
        temporary = self.root / TEMPORARY / f"{os.getpid()}-{secrets.token_hex(4)}"
        temporary.parent.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                shutil.copyfileobj(source, file, COPY_BYTES)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def put_if(self, name: str, data: bytes, version: str | None) -> None:
        """Atomic among our own writers, who hold the lock."""
        found = self.stat(name)
        if (found and found.version) != version:
            raise ConflictError(f"{self.uri}/{name} was written by somebody else meanwhile")
        self.put(name, data)
        handle = os.open(self.root, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def link(self, source: str, target: str) -> None:
        place = self.root / target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        try:
            place.hardlink_to(self.root / source)
        except OSError:  # a file system without hard links
            self.put(target, self.read(source))

    def delete(self, names: Iterable[str]) -> None:
        """Files and whole folders."""
        for name in names:
            _remove(self.root / name)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        if self.root.exists() and not self.root.is_dir():
            raise ValueError(f"{self.uri} is a file; give a folder, new or existing")
        self.root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(
                    f"{self.uri} is being written by another run; wait for it to end"
                ) from None
            yield
        finally:
            os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for entry in path.iterdir():
            _remove(entry)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


class ObjectStorage:
    """A prefix of a bucket. Versions are etags; the lock is a lease object with a heartbeat."""

    def __init__(self, uri: str) -> None:
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        if not bucket:
            raise ValueError(f"{uri} names no bucket; give s3://bucket/prefix")
        self.uri = uri.rstrip("/")
        self._prefix = prefix.strip("/")
        options: dict[str, Any] = {}
        if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            options["client_options"] = {"allow_http": True}
        self._store = S3Store(bucket, **options)

    def __reduce__(self) -> tuple:
        return ObjectStorage, (self.uri,)

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self._prefix, name.strip("/")) if part)

    def read(self, name: str) -> bytes:
        try:
            return bytes(obstore.get(self._store, self._key(name)).bytes())
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.uri}/{name} does not exist") from None

    def read_range(self, name: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        return bytes(obstore.get_range(self._store, self._key(name), start=start, length=length))

    def buffer(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self.read(name))

    def open(self, name: str) -> BinaryIO:
        reader: Any = obstore.open_reader(self._store, self._key(name))
        return cast(BinaryIO, _SeekableReader(reader))

    def stat(self, name: str) -> Stat | None:
        try:
            found = obstore.head(self._store, self._key(name))
        except FileNotFoundError:
            return None
        return Stat(name, found["size"], str(found["e_tag"]))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        for page in obstore.list(self._store, self._key(prefix) or None):
            for found in page:
                name = found["path"].removeprefix(self._prefix).lstrip("/")
                yield Stat(name, found["size"], str(found["e_tag"]))

    def put(self, name: str, data: bytes) -> None:
        obstore.put(self._store, self._key(name), data)

    def put_file(self, name: str, source: Path) -> None:
        obstore.put(self._store, self._key(name), source)

    def put_if(self, name: str, data: bytes, version: str | None) -> None:
        mode: Any = "create" if version is None else {"e_tag": version}
        try:
            obstore.put(self._store, self._key(name), data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError, NotFoundError, FileNotFoundError):
            raise ConflictError(
                f"{self.uri}/{name} was written by somebody else meanwhile"
            ) from None

    def link(self, source: str, target: str) -> None:
        obstore.copy(self._store, self._key(source), self._key(target))

    def delete(self, names: Iterable[str]) -> None:
        """Files and everything below a prefix."""
        for name in names:
            keys = [self._key(found.name) for found in self.list(name)]
            obstore.delete(self._store, [*keys, self._key(name)])

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        now = self._probed_now()
        lease = _Lease(self, secrets.token_hex(8))
        lease.take(now)
        try:
            with lease.kept_alive():
                yield
        finally:
            lease.release()

    def _probed_now(self) -> float:
        """The store's clock, after making sure that it honours conditional writes."""
        name = f"_work/probe-{secrets.token_hex(8)}"
        self.put_if(name, b"1", None)
        try:
            for version in (None, '"no such version"'):
                try:
                    self.put_if(name, b"2", version)
                except ConflictError:
                    continue
                raise ValueError(
                    f"{self.uri}: this store ignores conditions on writes, so two runs could "
                    "overwrite each other; use one with conditional puts"
                )
            return self._modified(name)
        finally:
            self.delete([name])

    def _modified(self, name: str) -> float:
        return obstore.head(self._store, self._key(name))["last_modified"].timestamp()


class _Lease:
    """The right to write, renewed by a thread while the job lives."""

    def __init__(self, storage: ObjectStorage, owner: str) -> None:
        self.storage = storage
        self.data = json.dumps({"owner": owner}).encode()
        self.version: str | None = None
        self.stop = threading.Event()

    def take(self, now: float) -> None:
        found = self.storage.stat(LOCK)
        if found is not None and now - self.storage._modified(LOCK) < LEASE_SECONDS:
            raise BusyError(
                f"{self.storage.uri} is being written by another run; wait for it, or "
                f"{LEASE_SECONDS:.0f} s after its death"
            )
        try:
            self._write(found.version if found else None)
        except ConflictError:
            raise BusyError(f"{self.storage.uri} was taken by another run this moment") from None

    def _write(self, version: str | None) -> None:
        # The same bytes have the same etag in most stores: a counter makes each renewal new.
        data = self.data + secrets.token_hex(4).encode()
        self.storage.put_if(LOCK, data, version)
        found = self.storage.stat(LOCK)
        self.version = found.version if found else None

    @contextlib.contextmanager
    def kept_alive(self) -> Iterator[None]:
        thread = threading.Thread(target=self._renew, daemon=True, name="lease")
        thread.start()
        try:
            yield
        finally:
            self.stop.set()
            thread.join()

    def _renew(self) -> None:
        while not self.stop.wait(LEASE_SECONDS / 4):
            try:
                self._write(self.version)
            except ConflictError:
                return  # somebody else holds it now; the publish will find out
            except Exception as error:  # noqa: BLE001 - a network that fails now may work soon
                log.warning("the lease on %s was not renewed: %s", self.storage.uri, error)

    def release(self) -> None:
        found = self.storage.stat(LOCK)
        if found is not None and found.version == self.version:
            self.storage.delete([LOCK])


class _SeekableReader(io.RawIOBase):
    """An object's reader with what pyarrow asks of a file."""

    def __init__(self, reader: Any) -> None:  # noqa: ANN401
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def read(self, size: int = -1) -> bytes:
        return bytes(self._reader.read(None if size < 0 else size))
