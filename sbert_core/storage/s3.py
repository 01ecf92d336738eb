"""Objects below a prefix of an S3 bucket."""

import contextlib
import io
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO, cast

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

from sbert_core.storage.base import LOCK, ConflictError, Scope, Stat
from sbert_core.storage.lease import Lease
from sbert_core.storage.scope import files_in_scope

if TYPE_CHECKING:  # obstore has these in its stubs alone
    from obstore import ObjectMeta, PutMode, ReadableFile


class StoreError(OSError):
    """A request failed after the client's retries; it may succeed later."""


@contextlib.contextmanager
def _map_store_errors(uri: str, name: str) -> Iterator[None]:
    """Turn errors of the store's client into PermissionError and StoreError."""
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
        is_plain_http = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
        self._store = (
            S3Store(bucket, client_options={"allow_http": True})
            if is_plain_http
            else S3Store(bucket)
        )

    def __reduce__(self) -> "tuple[type[ObjectStorage], tuple[str]]":
        return ObjectStorage, (self.uri,)

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self._prefix, name.strip("/")) if part)

    def read(self, name: str) -> bytes:
        try:
            with _map_store_errors(self.uri, name):
                return bytes(obstore.get(self._store, self._key(name)).bytes())
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.uri}/{name} does not exist") from None

    def read_range(self, name: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        with _map_store_errors(self.uri, name):
            found = obstore.get_range(self._store, self._key(name), start=start, length=length)
        return bytes(found)

    def buffer(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self.read(name))

    def open(self, name: str) -> BinaryIO:
        with _map_store_errors(self.uri, name):
            reader = obstore.open_reader(self._store, self._key(name))
        return cast(BinaryIO, _SeekableReader(reader))

    def stat(self, name: str) -> Stat | None:
        try:
            with _map_store_errors(self.uri, name):
                found = obstore.head(self._store, self._key(name))
        except FileNotFoundError:
            return None
        return Stat(name, found["size"], str(found["e_tag"]))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        pages = iter(obstore.list(self._store, self._key(prefix) or None))
        while True:
            with _map_store_errors(self.uri, prefix), self._check_permission(prefix):
                page = next(pages, None)
            if page is None:
                return
            yield from map(self._stat_of, page)

    def find(self, scope: Scope) -> Iterator[Stat]:
        return self._find("", scope)

    def _find(self, folder: str, scope: Scope) -> Iterator[Stat]:
        """Files of a scope below a folder.

        A flat listing gives a thousand objects a request, so folders are listed one by one only
        where some of them can be skipped.
        """
        if scope.is_deep:
            yield from files_in_scope(self.list(folder), folder, scope)
            return
        with _map_store_errors(self.uri, folder), self._check_permission(folder):
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
    def _check_permission(self, prefix: str) -> Iterator[None]:
        """Raise the permission error behind a failed listing.

        The client reports a refused listing as GenericError; a HEAD request has the real reason.
        """
        try:
            yield
        except GenericError:
            with contextlib.suppress(FileNotFoundError):
                obstore.head(self._store, self._key(prefix) or LOCK)
            raise

    def _stat_of(self, found: "ObjectMeta") -> Stat:
        name = found["path"].removeprefix(self._prefix).lstrip("/")
        return Stat(name, found["size"], str(found["e_tag"]))

    def put(self, name: str, data: bytes) -> None:
        with _map_store_errors(self.uri, name):
            obstore.put(self._store, self._key(name), data)

    def put_file(self, name: str, source: Path) -> None:
        with _map_store_errors(self.uri, name):
            obstore.put(self._store, self._key(name), source)

    def work_folder(self) -> TemporaryDirectory[str]:
        return TemporaryDirectory(prefix="sbert-")

    def put_if(self, name: str, data: bytes, version: str | None) -> None:
        mode: PutMode = "create" if version is None else {"e_tag": version}
        try:
            with _map_store_errors(self.uri, name):
                obstore.put(self._store, self._key(name), data, mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError, NotFoundError, FileNotFoundError):
            raise ConflictError(f"{self.uri}/{name} was written by another run meanwhile") from None

    def link(self, source: str, target: str) -> None:
        with _map_store_errors(self.uri, target):
            obstore.copy(self._store, self._key(source), self._key(target))

    def carry_over(self, source: str, target: str) -> str:
        """The source: a copy would cost a request and its bytes, and objects have no links."""
        return source

    def delete_files(self, names: Iterable[str]) -> None:
        """Remove objects of these names, a thousand with one request."""
        keys = [self._key(name) for name in names]
        if keys:
            with _map_store_errors(self.uri, ""):
                obstore.delete(self._store, keys)

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects of these names and everything below them."""
        for name in names:
            keys = [self._key(found.name) for found in self.list(name)]
            with _map_store_errors(self.uri, name):
                obstore.delete(self._store, [*keys, self._key(name)])

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        now = self._check_conditional_writes()
        lease = Lease(self, self._modified_seconds)
        lease.take(now)
        try:
            with lease.renewing():
                yield
        finally:
            lease.release()

    def _check_conditional_writes(self) -> float:
        """Refuse a store that ignores conditions on writes; the time of its clock."""
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
            return self._modified_seconds(name)
        finally:
            self.delete([name])

    def _modified_seconds(self, name: str) -> float:
        return obstore.head(self._store, self._key(name))["last_modified"].timestamp()


class _SeekableReader(io.RawIOBase):
    """An object's reader with the methods pyarrow needs of a file."""

    def __init__(self, reader: "ReadableFile") -> None:
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
