"""What the manifest of an index states of each shard."""

from dataclasses import dataclass

from sbert_core.data_file import ListedFile
from sbert_core.json_record import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """One shard.

    live: rows that are not removed. nodes: distinct vectors. parts: sha256 of the files of the
    vectors artifact its live rows come from. files: index, rows and exact vectors, in that order.
    """

    rows: Count
    live: Count
    nodes: Count
    parts: tuple[str, ...]
    files: tuple[ListedFile, ...]
