"""Files of an artifact or a corpus, on a local disk or in an object store, behind one interface.

In:  a folder or an s3:// URI.
Out: Storage: whole files by relative name. Writes are atomic; a conditional write succeeds only
     over the version its writer has seen; one writer holds the lock.

The first room of the core, since actors, tasks and jobs all read and write files. Credentials come
from the usual environment variables (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL ...) and stay there.
"""

from pathlib import Path

from sbert_core.storage.base import (
    BusyError,
    ConflictError,
    NameOutsideStorage,
    Stat,
    Storage,
    UnsupportedStore,
)
from sbert_core.storage.local import LocalStorage
from sbert_core.storage.s3 import ObjectStorage, StoreError

__all__ = [
    "BusyError",
    "ConflictError",
    "LocalStorage",
    "NameOutsideStorage",
    "Stat",
    "Storage",
    "StoreError",
    "UnsupportedStore",
    "storage_at",
]


def storage_at(place: str | Path) -> Storage:
    """Open the storage of a folder or s3:// URI; it need not exist yet.

    UnsupportedStore for other schemes; ValueError for an address with credentials or a port.
    """
    text = str(place)
    scheme, is_uri, rest = text.partition("://")
    if is_uri and set(":@") & set(rest.partition("/")[0]):
        # The message leaves the address out: it would put a password into logs and manifests.
        raise ValueError(
            f"a {scheme}:// address holds a user, a password or a port; give s3://bucket/prefix, "
            "and keys through AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if text.startswith("s3://"):
        return ObjectStorage(text)
    if is_uri:
        raise UnsupportedStore(text, scheme)
    return LocalStorage(Path(text))
