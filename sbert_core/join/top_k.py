"""The k most similar rows of each row, without looking at each in full.

In:  blocks of turned vectors (see join), numbered over a whole side.
Out: for each row its k rows of highest cosine, and every row tied with the last of them: which of
     the tied ones stay is decided by id, later.

What a row has found so far is a threshold of its own: a bound below it rules a pair out.
"""

import numpy as np

from sbert_core.join.bounded import (
    DENSE_SHARE,
    FLOAT32_STEP,
    SCORED_PAIRS,
    TILE,
    Block,
    Edges,
    cosines,
    unit_rows,
)

NOT_YET = np.float32(-2)


class Nearest:
    """The best rows so far of a block's rows."""

    def __init__(self, block: Block, k: int, threshold: float) -> None:
        self.block = block
        self.k = k
        self.floor = np.full(len(block), max(NOT_YET, np.float32(threshold)), np.float32)
        self._slack = (block.short.shape[1] + 4) * FLOAT32_STEP
        self._kept = _nothing()
        self._new: list[Edges] = []
        self._num_new = 0

    def meet(self, other: Block, rows: np.ndarray, own_rows: np.ndarray | None = None) -> None:
        """Look at all rows of another block. own_rows: numbers on the same side, to skip self."""
        for first_a in range(0, len(self.block), TILE):
            tile_a = slice(first_a, first_a + TILE)
            for first_b in range(0, len(other), TILE):
                tile_b = slice(first_b, first_b + TILE)
                a, b = self._candidates(other, tile_a, tile_b)
                if own_rows is not None:
                    is_other = own_rows[a] != rows[b]
                    a, b = a[is_other], b[is_other]
                self._score(other, rows, a, b)
        self._prune()

    def edges(self) -> Edges:
        """Places in the block and rows they found, by place."""
        self._prune()
        return self._kept

    def _candidates(
        self, other: Block, tile_a: slice, tile_b: slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of two tiles that may be among the best."""
        floor = self.floor[tile_a, None] - self._slack
        near = self.block.short[tile_a] @ other.short[tile_b].T
        flat = np.flatnonzero((near >= floor).reshape(-1))
        if len(flat) > DENSE_SHARE * near.size:
            full_a, full_b = (
                unit_rows(side).astype(np.float32)
                for side in (self.block.vectors[tile_a], other.vectors[tile_b])
            )
            near = full_a @ full_b.T
            slack = full_a.shape[1] * FLOAT32_STEP
            # One more than k: a row may meet itself.
            if (place := near.shape[1] - self.k - 1) > 0:
                best = np.partition(near, place, axis=1)[:, place, None]
                floor = np.maximum(self.floor[tile_a, None], best) - 2 * slack
            else:
                floor = self.floor[tile_a, None] - slack
            flat = np.flatnonzero((near >= floor).reshape(-1))
        return flat // near.shape[1] + tile_a.start, flat % near.shape[1] + tile_b.start

    def _score(self, other: Block, rows: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        for first in range(0, len(a), SCORED_PAIRS):
            some_a, some_b = (side[first : first + SCORED_PAIRS] for side in (a, b))
            cos = cosines(self.block.vectors[some_a], other.vectors[some_b])
            good = cos >= self.floor[some_a]
            self._new.append(Edges(some_a[good], rows[some_b[good]], cos[good]))
            self._num_new += int(good.sum())
        if self._num_new > self.k * len(self.block):
            self._prune()

    def _prune(self) -> None:
        """Keep the best k of each row and what is tied with the last; raise the floors."""
        if not self._num_new:
            return
        parts = [self._kept, *self._new]
        a, b, cos = (np.concatenate([getattr(p, n) for p in parts]) for n in ("a", "b", "cos"))
        order = np.lexsort((b, -cos, a))
        a, b, cos = a[order], b[order], cos[order]
        rank = np.arange(len(a)) - np.searchsorted(a, a)
        is_last = rank == self.k - 1
        self.floor[a[is_last]] = np.maximum(self.floor[a[is_last]], cos[is_last])
        kept = (rank < self.k) | (cos >= self.floor[a])
        self._kept = Edges(a[kept], b[kept], cos[kept])
        self._new, self._num_new = [], 0


def likely_cosine(sample: np.ndarray, k: int) -> float:
    """A cosine that most rows' k-th best will exceed, from a sample: it has fewer rows than all."""
    unit = unit_rows(sample)
    cos = unit @ unit.T
    np.fill_diagonal(cos, -1)
    place = max(0, len(sample) - k)
    return float(np.median(np.partition(cos, place - 1, axis=1)[:, place - 1])) if place else -1.0


def _nothing() -> Edges:
    return Edges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
