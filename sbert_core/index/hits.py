"""The best rows for each query, found in parts and merged.

Shapes: Q queries, k places. Cosines fall along a row; equal ones are ordered by row number. An
empty place has row NO_ROW and cosine -inf.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import faiss
import numpy as np

from sbert_core.faiss_library import untyped

NO_ROW = -1
EXACT_BLOCK = 16_384  # vectors compared at a time: (Q, 16384) float32 cosines in memory


@dataclass(frozen=True, slots=True)
class Hits:
    """The k best rows of each query."""

    cos: np.ndarray  # (Q, k) float32
    rows: np.ndarray  # (Q, k) int64

    @property
    def k(self) -> int:
        """Places of each query."""
        return int(self.cos.shape[1])

    def with_offset(self, first_row: int) -> "Hits":
        """The same hits with `first_row` added to every row number."""
        return Hits(self.cos, np.where(self.rows == NO_ROW, NO_ROW, self.rows + first_row))


def empty_hits(num_queries: int, k: int) -> Hits:
    """Hits of which every place is empty."""
    return Hits(
        np.full((num_queries, k), -np.inf, np.float32), np.full((num_queries, k), NO_ROW, np.int64)
    )


def merge_hits(parts: Sequence[Hits], k: int) -> Hits:
    """The k best of several parts that share no row, padded with empty places."""
    cos = np.hstack([part.cos for part in parts])
    rows = np.hstack([part.rows for part in parts])
    order = np.lexsort((rows, -cos), axis=-1)[:, :k]
    best = Hits(np.take_along_axis(cos, order, 1), np.take_along_axis(rows, order, 1))
    if best.k == k:
        return best
    padding = empty_hits(len(cos), k - best.k)
    return Hits(np.hstack([best.cos, padding.cos]), np.hstack([best.rows, padding.rows]))


def exact_search(queries: np.ndarray, vectors: np.ndarray, k: int) -> Hits:
    """The k best of all vectors by brute force; memory grows with queries and one block."""
    best = empty_hits(len(queries), k)
    for first in range(0, len(vectors), EXACT_BLOCK):
        cos = queries @ vectors[first : first + EXACT_BLOCK].T
        if cos.shape[1] > k:
            rows = np.argpartition(-cos, k - 1, axis=1)[:, :k]
            block = Hits(np.take_along_axis(cos, rows, 1), rows.astype(np.int64))
        else:
            block = Hits(cos, np.broadcast_to(np.arange(cos.shape[1]), cos.shape))
        best = merge_hits([best, block.with_offset(first)], k)
    return best


def inner_products(queries: np.ndarray, vectors: np.ndarray, rows_Qk: np.ndarray) -> np.ndarray:
    """(Q, k) inner products of query q with vectors[rows_Qk[q]]; undefined for rows below zero."""
    found = np.empty(rows_Qk.shape, np.float32)
    queries, rows_Qk = np.ascontiguousarray(queries), np.ascontiguousarray(rows_Qk, np.int64)
    pointers = (faiss.swig_ptr(array) for array in (found, queries, vectors, rows_Qk))
    # FAISS reads the vectors in place; numpy would first gather a (Q, k, D) copy of them.
    untyped.fvec_inner_products_by_idx(*pointers, queries.shape[1], *rows_Qk.shape)
    return found
