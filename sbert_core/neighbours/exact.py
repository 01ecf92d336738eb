"""Unit vectors -> their most similar pairs, by looking at all of them.

In:  unit vectors.
Out: the k pairs of highest cosine, each unordered pair once, ties to the smaller row numbers.
"""

from dataclasses import dataclass

import numpy as np

BLOCK_ROWS = 2048


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of row numbers, a < b, by falling cosine."""

    a: np.ndarray
    b: np.ndarray
    cos: np.ndarray


def top_pairs(vectors: np.ndarray, k: int) -> Pairs:
    """The k most similar pairs; memory grows with the block and k, not with the pairs."""
    best = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    for first_a in range(0, len(vectors), BLOCK_ROWS):
        for first_b in range(first_a, len(vectors), BLOCK_ROWS):
            rows_a = vectors[first_a : first_a + BLOCK_ROWS]
            rows_b = vectors[first_b : first_b + BLOCK_ROWS]
            best = _fold(best, _block_pairs(rows_a, rows_b, first_a, first_b, best, k), k)
    return best


def _block_pairs(
    rows_a: np.ndarray, rows_b: np.ndarray, first_a: int, first_b: int, best: Pairs, k: int
) -> Pairs:
    """Pairs of two blocks that may still enter the best k."""
    cos = rows_a @ rows_b.T
    if first_a == first_b:
        cos[np.tril_indices(len(cos))] = -np.inf
    floor = best.cos[-1] if len(best.cos) == k else -np.inf
    if cos.size > k:
        floor = max(floor, np.partition(cos, -k, axis=None)[-k])
    a, b = np.nonzero((cos >= floor) & (cos > -np.inf))
    return Pairs(a + first_a, b + first_b, cos[a, b])


def _fold(best: Pairs, block: Pairs, k: int) -> Pairs:
    a, b = np.append(best.a, block.a), np.append(best.b, block.b)
    cos = np.append(best.cos, block.cos)
    order = np.lexsort((b, a, -cos))[:k]
    return Pairs(a[order], b[order], cos[order])
