"""Copies of files within an artifact, by its store."""

from sbert_core.errors import TransientError
from sbert_core.storage import storage_at


def copy_file(place: str, source: str, target: str, num_bytes: int) -> None:
    """Give a file of an artifact a second name: by a hard link, or a copy inside the store.

    num_bytes: the size that the manifest lists. A copy that an earlier run made is kept;
    TransientError if the file has another size.
    """
    storage = storage_at(place)
    found = storage.stat(target)
    if found is None or found.size != num_bytes:
        storage.link(source, target)
        found = storage.stat(target)
    if found is None or found.size != num_bytes:
        size = "missing" if found is None else f"of {found.size:,} bytes"
        raise TransientError(
            f"{place}/{target} is {size}, the manifest lists {num_bytes:,} bytes; make the "
            "artifact again"
        )
