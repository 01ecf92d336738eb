"""A vectors artifact -> which of its rows go into which shard, and which are sampled.

All of it follows from the number of rows and the seed; the number of workers has no part in it.
"""

import math

import numpy as np

from sbert_core.arrays import Float32Array, Int64Array
from sbert_core.vectors.row_ranges import RowRange, sample_rows
from workers.index.job import RecallQueries

LEAST_SHARD_ROWS = 65_536  # below this a shard is not cut further for the sake of parallel builds
MANY_SHARDS = 8
MOST_SHARD_ROWS = 1_000_000  # 1.7 GB as a graph of 384 dimensions
TRAIN_ROWS_PER_CELL = 64
LEAST_TRAIN_ROWS = 50_000
HELD_SHARE = 0.1  # of the rows of a build, at most


def num_shards(num_rows: int, wanted: int | None) -> int:
    """The value of --shards; without it up to eight, and one for each million rows beyond eight."""
    if wanted is not None:
        return max(1, min(wanted, num_rows))
    parallel = min(MANY_SHARDS, math.ceil(num_rows / LEAST_SHARD_ROWS))
    return max(1, parallel, math.ceil(num_rows / MOST_SHARD_ROWS))


def sample_held_rows(pieces: list[RowRange], number: int, seed: int) -> list[RowRange]:
    """Rows to search for before they are inserted: `number`, at most a tenth of the pieces."""
    total = sum(piece.size for piece in pieces)
    return sample_rows(pieces, min(number, int(HELD_SHARE * total)), (seed, 1))


def make_queries(
    inside: list[Float32Array], held: list[Float32Array], held_pieces: list[RowRange], dim: int
) -> RecallQueries:
    """Queries from blocks of vectors. held_pieces: the rows that the blocks of `held` are of."""
    empty = np.empty((0, dim), np.float32)
    rows: dict[str, Int64Array] = {}
    for piece in held_pieces:
        assert piece.rows is not None
        rows[piece.sha256] = np.union1d(rows.get(piece.sha256, np.empty(0, int)), piece.rows)
    return RecallQueries(np.concatenate([empty, *inside]), np.concatenate([empty, *held]), rows)


def num_train_rows(num_cells: int | None, wanted: int | None) -> int:
    """The value of --train-sample; without it 50,000 rows, and no fewer than 64 for each cell."""
    return wanted or max(LEAST_TRAIN_ROWS, TRAIN_ROWS_PER_CELL * (num_cells or 0))
