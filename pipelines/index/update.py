"""An index and a later vectors artifact -> what stays, what dies, what is new.

Files of the vectors artifact are known by their sha256. Rows of a file that is gone stay if a new
file holds the same id with the same text, made in the same way: an edit of one row in a file of a
thousand costs one row. All other rows of such files die; what no row stands for is added.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.artifacts.manifest import Manifest
from pipelines.runtime.tasks import in_order
from sbert_core.vectors.row_ranges import Piece
from workers.index.shard import IndexJob, part_keys, shard_keys

STALE_LIMIT = 0.2  # of all rows; above it the index is built anew
MORE_SHARDS = 8  # than a fresh build would have


@dataclass(frozen=True, slots=True)
class Update:
    """What changes.

    moved: by shard, rows that live on and where they stand now: position in the shard, sha256 of
    the new part, row in it.
    """

    gone: frozenset[str]
    moved: dict[int, list[tuple[np.ndarray, Piece, np.ndarray]]]
    added: list[Piece]
    num_dead: int


def updated(job: IndexJob, current: Manifest, pieces: list[Piece], is_same_recipe: bool) -> Update:
    """Compare what the index has consumed with what there is now."""
    shards: list[dict[str, Any]] = current.facts["shard_records"]
    consumed = {sha for shard in shards for sha in shard["parts"]}
    there = {piece.sha256 for piece in pieces}
    gone = frozenset(consumed - there)
    fresh = [piece for piece in pieces if piece.sha256 not in consumed]
    touched = [n for n, shard in enumerate(shards) if gone & set(shard["parts"])]
    old = in_order(shard_keys, [(job, shards[n]["files"], gone) for n in touched])
    new = in_order(part_keys, [(job, piece) for piece in fresh]) if is_same_recipe else []
    moved: dict[int, list[tuple[np.ndarray, Piece, np.ndarray]]] = {n: [] for n in touched}
    num_dead = sum(len(keys) for _, keys in old)
    added: list[Piece] = []
    for number, piece in enumerate(fresh):
        is_new = np.ones(piece.num_rows, bool)
        for shard, (positions, keys) in zip(touched, old, strict=True) if is_same_recipe else ():
            _, here, there_rows = np.intersect1d(keys, new[number], return_indices=True)
            if len(here):
                moved[shard].append((positions[here], piece, there_rows))
                is_new[there_rows] = False
                num_dead -= len(here)
        if is_new.any():
            rows = None if is_new.all() else np.flatnonzero(is_new)
            added.append(Piece(piece.path, piece.sha256, piece.num_rows, rows))
    return Update(gone, moved, added, num_dead)
