"""A vectors artifact -> which of its rows go into which shard, and which are sampled.

All of it follows from the number of rows and the seed; the number of workers has no part in it.
"""

import math

import numpy as np

from sbert_core.vectors.row_ranges import Piece, sampled
from workers.index.shard import Queries

LEAST_SHARD_ROWS = 65_536  # below this a shard is not cut further for the sake of parallel builds
MANY_SHARDS = 8
MOST_SHARD_ROWS = 1_000_000  # 1.7 GB as a graph of 384 dimensions
TRAIN_ROWS_PER_CELL = 64
LEAST_TRAIN_ROWS = 50_000
HELD_SHARE = 0.1  # of the rows of a build, at most


def num_shards(num_rows: int, wanted: int | None) -> int:
    """As many as asked for; else up to eight, and one for each million rows beyond eight."""
    if wanted is not None:
        return max(1, min(wanted, num_rows))
    parallel = min(MANY_SHARDS, math.ceil(num_rows / LEAST_SHARD_ROWS))
    return max(1, parallel, math.ceil(num_rows / MOST_SHARD_ROWS))


def held_sample(pieces: list[Piece], number: int, seed: int) -> list[Piece]:
    """Rows to search for before they are inserted."""
    total = sum(piece.size for piece in pieces)
    return sampled(pieces, min(number, int(HELD_SHARE * total)), (seed, 1))


def queries_of(
    inside: list[np.ndarray], held: list[np.ndarray], held_pieces: list[Piece], dim: int
) -> Queries:
    empty = np.empty((0, dim), np.float32)
    rows: dict[str, np.ndarray] = {}
    for piece in held_pieces:
        assert piece.rows is not None
        rows[piece.sha256] = np.union1d(rows.get(piece.sha256, np.empty(0, int)), piece.rows)
    return Queries(np.concatenate([empty, *inside]), np.concatenate([empty, *held]), rows)


def train_rows(num_cells: int | None, wanted: int | None) -> int:
    return wanted or max(LEAST_TRAIN_ROWS, TRAIN_ROWS_PER_CELL * (num_cells or 0))
