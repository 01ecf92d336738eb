"""Vectors of one or two artifacts -> blocks to join, and where their edges go."""

import math

import numpy as np

from sbert_core.join.duplicates import Alike
from sbert_core.vectors.row_ranges import cut
from sbert_core.vectors.table import VectorTable
from workers.pairs.join_job import BlockOf

BLOCK_ROWS = 16_384  # 30 MB of 384 dimensions
LEAST_BLOCK_ROWS = 2048
MANY_BLOCKS = 8  # so that a small join keeps several cores busy


def num_blocks(num_rows: int) -> int:
    few = min(MANY_BLOCKS, math.ceil(num_rows / LEAST_BLOCK_ROWS))
    return max(1, few, math.ceil(num_rows / BLOCK_ROWS))


def blocks_of(side: VectorTable, alike: Alike) -> list[BlockOf]:
    """First rows of all groups, in order, in blocks of equal size."""
    pieces, firsts, start = [], {}, 0
    for piece in side.pieces:
        firsts[piece.path] = start
        low, high = np.searchsorted(alike.first, [start, start + piece.num_rows])
        if low < high:
            pieces.append(piece.only(alike.first[low:high] - start))
        start += piece.num_rows
    parts = cut(pieces, num_blocks(len(alike.first)))
    return [
        BlockOf(side.name, number, tuple((piece, firsts[piece.path]) for piece in part))
        for number, part in enumerate(parts)
    ]


def part_starts(blocks: list[BlockOf], most: int | None = None) -> np.ndarray:
    """The first row of each part of the edges: of each block, or of every so many."""
    step = 1 if most is None else math.ceil(len(blocks) / most)
    starts = np.array([block.first_row for block in blocks[::step]], np.int64)
    starts[0] = 0
    return starts
