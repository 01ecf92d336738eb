"""Vectors of one or two artifacts -> blocks to join, and the parts their edges go to."""

import math

import numpy as np

from sbert_core.arrays import Int64Array
from sbert_core.join.duplicates import DuplicateGroups
from sbert_core.vectors.row_ranges import split_evenly
from sbert_core.vectors.table import VectorTable
from workers.pairs.join_job import BlockSpec

BLOCK_ROWS = 16_384  # 30 MB of 384 dimensions
LEAST_BLOCK_ROWS = 2048
MANY_BLOCKS = 8  # so that a small join keeps several cores busy


def num_blocks(num_rows: int) -> int:
    """Blocks for so many rows: of BLOCK_ROWS, or smaller ones until there are MANY_BLOCKS."""
    few = min(MANY_BLOCKS, math.ceil(num_rows / LEAST_BLOCK_ROWS))
    return max(1, few, math.ceil(num_rows / BLOCK_ROWS))


def plan_blocks(side: VectorTable, groups: DuplicateGroups) -> list[BlockSpec]:
    """First rows of all groups of a side, in order, in blocks of equal size."""
    pieces, firsts, start = [], {}, 0
    for piece in side.row_ranges:
        firsts[piece.path] = start
        low, high = np.searchsorted(groups.first, [start, start + piece.num_rows])
        if low < high:
            pieces.append(piece.take(groups.first[low:high] - start))
        start += piece.num_rows
    parts = split_evenly(pieces, num_blocks(len(groups.first)))
    return [
        BlockSpec(side.name, number, tuple((piece, firsts[piece.path]) for piece in part))
        for number, part in enumerate(parts)
    ]


def part_starts(blocks: list[BlockSpec], max_parts: int | None = None) -> Int64Array:
    """The first row of each part of the edges: a part for each block, or for every few of them."""
    step = 1 if max_parts is None else math.ceil(len(blocks) / max_parts)
    starts = np.array([block.first_row for block in blocks[::step]], np.int64)
    starts[0] = 0
    return starts
