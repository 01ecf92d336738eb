"""A shard of a published index, fetched, checked against its hashes and opened."""

from collections.abc import Sequence
from pathlib import Path

from sbert_core.data_file import ListedFile
from sbert_core.index.kinds import IndexKind
from sbert_core.index.shard import Shard
from sbert_core.storage import Storage
from workers.common.files import verified_file

PART_DIGITS = 16  # of the sha256 of a part: how rows of a shard name the file they come from


def open_shard(
    storage: Storage, kind: IndexKind, dim: int, files: Sequence[ListedFile], folder: Path
) -> Shard:
    """Open a shard from its three files.

    folder: for copies of files that are not on this machine. TransientError if a file is missing or
    differs from its sha256, before a library parses it.
    """
    index, rows, exact = (verified_file(storage, file, folder) for file in files)
    return Shard.read(kind.read(index, dim), rows, exact)
