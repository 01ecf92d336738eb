"""Vectors of one or two artifacts -> blocks to join, and what to expect of the join."""

import math
from dataclasses import dataclass

import numpy as np

from pipelines.artifacts import Artifact
from sbert_core.neighbours.alike import Alike, vector_digests
from sbert_core.neighbours.join import unit_rows
from sbert_core.vectors.pieces import cut
from workers.joining import BlockOf, Side

BLOCK_ROWS = 16_384  # 30 MB of 384 dimensions
LEAST_BLOCK_ROWS = 2048
MANY_BLOCKS = 8  # so that a small join keeps several cores busy
SAMPLED_ROWS = 4096


def side_of(name: str, vectors: Artifact) -> Side:
    return Side(name, vectors.uri, vectors.manifest.spec["scale"], tuple(vectors.pieces))


def num_blocks(num_rows: int) -> int:
    few = min(MANY_BLOCKS, math.ceil(num_rows / LEAST_BLOCK_ROWS))
    return max(1, few, math.ceil(num_rows / BLOCK_ROWS))


def blocks_of(side: Side, alike: Alike) -> list[BlockOf]:
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


@dataclass(frozen=True, slots=True)
class Expected:
    """What a sample says of the pairs. densest: row of the sample with the most of them."""

    num_pairs: float
    densest: int
    densest_pairs: float


def expected_pairs(
    sample_a: np.ndarray, sample_b: np.ndarray, num_rows: tuple[int, int], threshold: float
) -> Expected:
    """The number of pairs of rows that are not equal, from all pairs of two samples."""
    cos = (unit_rows(sample_a) @ unit_rows(sample_b).T).astype(np.float32)
    equal = vector_digests(sample_a)[:, None] == vector_digests(sample_b)
    degree = ((cos >= np.float32(threshold)) & ~equal).sum(axis=1)
    densest = int(degree.argmax())
    per_row = degree / len(sample_b) * num_rows[1]
    return Expected(float(per_row.mean()) * num_rows[0], densest, float(per_row[densest]))
