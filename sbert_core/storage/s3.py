"""Objects below a prefix of a bucket."""

import contextlib
import io
import json
import logging
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, cast

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    GenericError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from sbert_core.storage.base import LOCK, BusyError, ConflictError, Scope, Stat
from sbert_core.storage.scope import files_in_scope

log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0


class StoreError(OSError):
    """The store did not do what it was asked to, after several tries; it may do so later."""


@contextlib.contextmanager
def _asked(uri: str, name: str) -> Iterator[None]:
    """What the store's client says, as errors that every job knows."""
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(
            f"{uri}/{name}: the store refuses ({_first_line(error)}); check the credentials"
        ) from None
    except GenericError as error:
        raise StoreError(f"{uri}/{name}: the store fails ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]


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
            with _asked(self.uri, name):
                return bytes(obstore.get(self._store, self._key(name)).bytes())
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.uri}/{name} does not exist") from None

    def read_range(self, name: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        with _asked(self.uri, name):
            found = obstore.get_range(self._store, self._key(name), start=start, length=length)
        return bytes(found)

    def buffer(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self.read(name))

    def open(self, name: str) -> BinaryIO:
        with _asked(self.uri, name):
            reader: Any = obstore.open_reader(self._store, self._key(name))
        return cast(BinaryIO, _SeekableReader(reader))

    def stat(self, name: str) -> Stat | None:
        try:
            with _asked(self.uri, name):
                found = obstore.head(self._store, self._key(name))
        except FileNotFoundError:
            return None
        return Stat(name, found["size"], str(found["e_tag"]))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        pages = iter(obstore.list(self._store, self._key(prefix) or None))
        while True:
            with _asked(self.uri, prefix), self._refusal_told(prefix):
                page = next(pages, None)
            if page is None:
                return
            yield from map(self._stat_of, page)

    def find(self, scope: Scope) -> Iterator[Stat]:
        return self._find("", scope)

    def _find(self, folder: str, scope: Scope) -> Iterator[Stat]:
        """A thousand objects for a request; folder by folder only if that leaves some unlisted."""
        if scope.is_deep:
            yield from files_in_scope(self.list(folder), folder, scope)
            return
        with _asked(self.uri, folder), self._refusal_told(folder):
            found = obstore.list_with_delimiter(self._store, self._key(folder) or None)
        for item in found["objects"]:
            stat = self._stat_of(item)
            if scope.has(stat.name.rpartition("/")[2]):
                yield stat
        for key in found["common_prefixes"]:
            below = key.removeprefix(self._prefix).strip("/")
            if (inner := scope.inside(below.rpartition("/")[2])) is not None:
                yield from self._find(below, inner)

    @contextlib.contextmanager
    def _refusal_told(self, prefix: str) -> Iterator[None]:
        """A listing that is refused is a failure like any other to the client; a head is not."""
        try:
            yield
        except GenericError:
            with contextlib.suppress(FileNotFoundError):
                obstore.head(self._store, self._key(prefix) or LOCK)
            raise

    def _stat_of(self, found: Any) -> Stat:  # noqa: ANN401
        name = found["path"].removeprefix(self._prefix).lstrip("/")
        return Stat(name, found["size"], str(found["e_tag"]))

    def put(self, name: str, data: bytes) -> None:
        with _asked(self.uri, name):
            obstore.put(self._store, self._key(name), data)

    def put_file(self, name: str, source: Path) -> None:
        with _asked(self.uri, name):
            obstore.put(self._store, self._key(name), source)

    def work_folder(self) -> TemporaryDirectory:
        return TemporaryDirectory(prefix="sbert-")

    def put_if(self, name: str, data: bytes, version: str | None) -> None:
        mode: Any = "create" if version is None else {"e_tag": version}
        try:
            with _asked(self.uri, name):
                obstore.put(self._store, self._key(name), data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError, NotFoundError, FileNotFoundError):
            raise ConflictError(
                f"{self.uri}/{name} was written by somebody else meanwhile"
            ) from None

    def link(self, source: str, target: str) -> None:
        with _asked(self.uri, target):
            obstore.copy(self._store, self._key(source), self._key(target))

    def delete(self, names: Iterable[str]) -> None:
        """Files and everything below a prefix."""
        for name in names:
            keys = [self._key(found.name) for found in self.list(name)]
            with _asked(self.uri, name):
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
