"""An index and a later vectors artifact -> which rows stay, which die, which are new.

Files of the vectors artifact are known by their sha256. Rows of a file that is gone stay if a new
file holds the same id with the same text, made in the same way: an edit of one row in a file of a
thousand costs one row. All other rows of such files die; rows of new files that match no row of the
index are added.
"""

from dataclasses import dataclass

import numpy as np

from pipelines.artifacts.manifest import IndexManifest
from pipelines.runtime.tasks import in_order
from sbert_core.vectors.row_ranges import RowRange
from workers.index.job import IndexJob
from workers.index.update import MovedRows, hash_part_rows, hash_shard_rows

STALE_LIMIT = 0.2  # of all rows; above it the index is built anew
MORE_SHARDS = 8  # than a fresh build would have


@dataclass(frozen=True, slots=True)
class Update:
    """What changes in an index.

    gone: sha256 of files that are there no more. moved: by shard, rows that live on in other files;
    a shard that only loses rows has an empty list. added: rows for new shards.
    """

    gone: frozenset[str]
    moved: dict[int, list[MovedRows]]
    added: list[RowRange]
    num_dead: int


def plan_update(
    job: IndexJob, current: IndexManifest, pieces: list[RowRange], is_same_recipe: bool
) -> Update:
    """Compare the files an index was made from with those that are there now.

    current: manifest of the index. pieces: all rows of the vectors. is_same_recipe: equal texts
    have equal vectors, so that rows may live on.
    """
    shards = current.metrics.shard_records
    consumed = {sha for shard in shards for sha in shard.parts}
    gone = frozenset(consumed - {piece.sha256 for piece in pieces})
    fresh = [piece for piece in pieces if piece.sha256 not in consumed]
    touched = [n for n, shard in enumerate(shards) if gone & set(shard.parts)]
    old = in_order(hash_shard_rows, [(job, shards[n].files, gone) for n in touched])
    new = in_order(hash_part_rows, [(job, piece) for piece in fresh]) if is_same_recipe else []
    moved: dict[int, list[MovedRows]] = {n: [] for n in touched}
    num_dead = sum(len(own.keys) for own in old)
    added: list[RowRange] = []
    for number, piece in enumerate(fresh):
        is_new = np.ones(piece.num_rows, bool)
        for shard, own in zip(touched, old, strict=True) if is_same_recipe else ():
            _, here, there = np.intersect1d(own.keys, new[number], return_indices=True)
            if len(here):
                moved[shard].append(MovedRows(own.positions[here], piece, there))
                is_new[there] = False
                num_dead -= len(here)
        if is_new.any():
            rows = None if is_new.all() else np.flatnonzero(is_new)
            added.append(RowRange(piece.path, piece.sha256, piece.num_rows, rows))
    return Update(gone, moved, added, num_dead)
