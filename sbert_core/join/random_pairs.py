"""How similar rows are by chance: the cosines of all pairs of a sample.

In:  vectors of rows drawn at random.
Out: a histogram over [-1, 1], and the pairs that reach a floor, to be read.
"""

from dataclasses import dataclass

import numpy as np

from sbert_core.join.bounded import SCORED_PAIRS, Edges, cosines, unit_rows

BINS = 200  # of 0.01
BLOCK_ROWS = 1024
SLACK = 1e-5  # of products in float32


@dataclass(frozen=True, slots=True)
class Chance:
    """count: pairs by bin; the last bin holds 1 itself. near: pairs that reach the floor."""

    count: np.ndarray
    near: Edges

    @property
    def num_pairs(self) -> int:
        return int(self.count.sum())

    @property
    def centres(self) -> np.ndarray:
        return (np.arange(BINS) + 0.5) * 2 / BINS - 1


def by_chance(vectors_ND: np.ndarray, floor: float | None) -> Chance:
    """floor: the least cosine of pairs to be read; None: only the histogram."""
    unit = unit_rows(vectors_ND).astype(np.float32)
    count = np.zeros(BINS, np.int64)
    found = []
    for first in range(0, len(unit), BLOCK_ROWS):
        cos = unit[first : first + BLOCK_ROWS] @ unit[first:].T
        is_pair = np.triu(np.ones(cos.shape, bool), 1)
        bins = np.clip((cos[is_pair] + 1) * (BINS / 2), 0, BINS - 1).astype(np.int64)
        count += np.bincount(bins, minlength=BINS)
        if floor is not None:
            near = np.argwhere(is_pair & (cos >= floor - SLACK)) + first
            found += _exactly(vectors_ND, near.astype(np.int32), np.float32(floor))
    kinds = (np.int32, np.int32, np.float32)
    columns = list(zip(*found, strict=True)) or [(), (), ()]
    made = [np.concatenate([np.empty(0, k), *c]) for c, k in zip(columns, kinds, strict=True)]
    return Chance(count, Edges(*made))


def _exactly(
    vectors_ND: np.ndarray, pairs_P2: np.ndarray, floor: np.float32
) -> list[tuple[np.ndarray, ...]]:
    """Pairs that reach the floor, some at a time: in float64 a pair takes 9 KB."""
    found: list[tuple[np.ndarray, ...]] = []
    for first in range(0, len(pairs_P2), SCORED_PAIRS):
        a, b = pairs_P2[first : first + SCORED_PAIRS].T
        cos = cosines(vectors_ND[a], vectors_ND[b])
        reach = cos >= floor
        found.append((a[reach], b[reach], cos[reach]))
    return found
