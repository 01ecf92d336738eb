"""The best rows for each query, found in parts and folded together.

Shapes: Q queries, k places. Cosines fall along a row; equal ones stand by row number. A place
that holds nothing has row -1 and cosine -inf.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np

untyped: Any = faiss  # its stubs do not know all of it
NOTHING = -1
EXACT_BLOCK = 16_384


@dataclass(frozen=True, slots=True)
class Hits:
    """The k best rows of each query."""

    cos: np.ndarray  # (Q, k) float32
    rows: np.ndarray  # (Q, k) int64

    @property
    def k(self) -> int:
        return self.cos.shape[1]

    def moved(self, first_row: int) -> "Hits":
        """The same hits where rows are counted from elsewhere."""
        return Hits(self.cos, np.where(self.rows == NOTHING, NOTHING, self.rows + first_row))


def nothing(num_queries: int, k: int) -> Hits:
    return Hits(
        np.full((num_queries, k), -np.inf, np.float32), np.full((num_queries, k), NOTHING, np.int64)
    )


def best_of(parts: Sequence[Hits], k: int) -> Hits:
    """The k best of several parts that share no row."""
    cos = np.hstack([part.cos for part in parts])
    rows = np.hstack([part.rows for part in parts])
    order = np.lexsort((rows, -cos), axis=-1)[:, :k]
    found = Hits(np.take_along_axis(cos, order, 1), np.take_along_axis(rows, order, 1))
    if found.k == k:
        return found
    padding = nothing(len(cos), k - found.k)
    return Hits(np.hstack([found.cos, padding.cos]), np.hstack([found.rows, padding.rows]))


def exact_hits(queries: np.ndarray, vectors: np.ndarray, k: int) -> Hits:
    """The k best of all vectors, by looking at each; memory grows with queries and a block."""
    best = nothing(len(queries), k)
    for first in range(0, len(vectors), EXACT_BLOCK):
        cos = queries @ vectors[first : first + EXACT_BLOCK].T
        if cos.shape[1] > k:
            rows = np.argpartition(-cos, k - 1, axis=1)[:, :k]
            block = Hits(np.take_along_axis(cos, rows, 1), rows.astype(np.int64))
        else:
            block = Hits(cos, np.broadcast_to(np.arange(cos.shape[1]), cos.shape))
        best = best_of([best, block.moved(first)], k)
    return best


def products(queries: np.ndarray, vectors: np.ndarray, rows_Qk: np.ndarray) -> np.ndarray:
    """Inner products of each query with vectors of its own; anything for rows below zero."""
    found = np.empty(rows_Qk.shape, np.float32)
    queries, rows_Qk = np.ascontiguousarray(queries), np.ascontiguousarray(rows_Qk, np.int64)
    pointers = (faiss.swig_ptr(array) for array in (found, queries, vectors, rows_Qk))
    # Without a copy of the vectors, which numpy would gather first.
    untyped.fvec_inner_products_by_idx(*pointers, queries.shape[1], *rows_Qk.shape)
    return found
