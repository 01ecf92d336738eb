"""How similar rows are by chance: the cosines of all pairs of a sample.

In:  vectors of rows drawn at random.
Out: a histogram over [-1, 1], and the pairs that reach a floor, to be read.
"""

from dataclasses import dataclass

import numpy as np

from sbert_core.neighbours.join import Edges, cosines, unit_rows

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


def by_chance(vectors_ND: np.ndarray, floor: float) -> Chance:
    unit = unit_rows(vectors_ND).astype(np.float32)
    count = np.zeros(BINS, np.int64)
    found = []
    for first in range(0, len(unit), BLOCK_ROWS):
        cos = unit[first : first + BLOCK_ROWS] @ unit[first:].T
        is_pair = np.triu(np.ones(cos.shape, bool), 1)
        bins = np.clip((cos[is_pair] + 1) * (BINS / 2), 0, BINS - 1).astype(np.int64)
        count += np.bincount(bins, minlength=BINS)
        found.append(np.argwhere(is_pair & (cos >= floor - SLACK)) + first)
    a, b = np.concatenate([np.empty((0, 2), np.int64), *found]).T
    exact = cosines(vectors_ND[a], vectors_ND[b])
    reach = exact >= np.float32(floor)
    return Chance(count, Edges(a[reach], b[reach], exact[reach]))
