"""Files of an artifact as local files, and back."""

import hashlib
from pathlib import Path

from sbert_core.data_file import ListedFile
from sbert_core.errors import TransientError
from sbert_core.storage import LocalStorage, Storage

COPY_BYTES = 8 * 2**20


def local_file(storage: Storage, name: str, folder: Path) -> Path:
    """A local path of a file: its own, or of a copy in `folder`."""
    if isinstance(storage, LocalStorage):
        return storage.path(name)
    path = folder / name.rpartition("/")[2]
    if not path.exists():
        with storage.open(name) as source, path.open("wb") as target:
            while block := source.read(COPY_BYTES):
                target.write(block)
    return path


def verified_file(storage: Storage, file: ListedFile, folder: Path) -> Path:
    """As local_file; TransientError unless its bytes are those that the manifest lists.

    Verified before a native library parses the file.
    """
    path = local_file(storage, file.path, folder)
    if not path.is_file():
        raise TransientError(f"{path} is missing; build the index again")
    with path.open("rb") as source:
        found = hashlib.file_digest(source, "sha256").hexdigest()
    if found != file.sha256:
        raise TransientError(
            f"{path} is corrupt: its sha256 is {found[:12]}, the manifest says "
            f"{file.sha256[:12]}; build the index again"
        )
    return path


def put_hashed_file(storage: Storage, name: str, source: Path, suffix: str) -> ListedFile:
    """Put a local file under `name` plus its hash, so that no other content can get this path."""
    with source.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    path, size = f"{name}-{sha256[:16]}{suffix}", source.stat().st_size
    storage.put_file(path, source)
    return ListedFile(path=path, sha256=sha256, bytes=size)
