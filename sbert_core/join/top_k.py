"""The k most similar rows of each row, without a full score for each pair.

In:  blocks of projected vectors (see `bounded`), rows numbered over a whole side.
Out: for each row its k rows of highest cosine, and every row tied with the last of them: ids decide
     later which of the tied ones stay.

The k-th best cosine a row has found so far is its floor: a bound below it rules a pair out.
"""

import numpy as np

from sbert_core.join.bounded import (
    DENSE_SHARE,
    FLOAT32_STEP,
    SCORED_PAIRS,
    TILE_ROWS,
    Edges,
    JoinBlock,
    normalize_rows,
    paired_cosines,
)

NO_FLOOR = np.float32(-2)  # below every cosine


class TopK:
    """The best rows so far of a block's rows.

    threshold: the least cosine of a pair.
    """

    def __init__(self, block: JoinBlock, k: int, threshold: float) -> None:
        self.block = block
        self.k = k
        self.floor = np.full(len(block), max(NO_FLOOR, np.float32(threshold)), np.float32)
        self._slack = (block.projected.shape[1] + 4) * FLOAT32_STEP
        self._kept = Edges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
        self._new: list[Edges] = []
        self._num_new = 0

    def add_block(
        self, other: JoinBlock, rows: np.ndarray, own_rows: np.ndarray | None = None
    ) -> None:
        """Compare with all rows of another block.

        rows: their numbers. own_rows: numbers of the block's rows where both are of one side, so
        that no row is paired with itself.
        """
        for first_a in range(0, len(self.block), TILE_ROWS):
            tile_a = slice(first_a, first_a + TILE_ROWS)
            for first_b in range(0, len(other), TILE_ROWS):
                tile_b = slice(first_b, first_b + TILE_ROWS)
                a, b = self._candidate_pairs(other, tile_a, tile_b)
                if own_rows is not None:
                    is_other = own_rows[a] != rows[b]
                    a, b = a[is_other], b[is_other]
                self._score(other, rows, a, b)
        self._prune()

    def edges(self) -> Edges:
        """Places in the block, the numbers of the rows found for them, cosines; by place."""
        self._prune()
        return self._kept

    def _candidate_pairs(
        self, other: JoinBlock, tile_a: slice, tile_b: slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of two tiles that may be among the best."""
        floor = self.floor[tile_a, None] - self._slack
        near = self.block.projected[tile_a] @ other.projected[tile_b].T
        flat = np.flatnonzero((near >= floor).reshape(-1))
        if len(flat) > DENSE_SHARE * near.size:
            full_a, full_b = (
                normalize_rows(side).astype(np.float32)
                for side in (self.block.vectors[tile_a], other.vectors[tile_b])
            )
            near = full_a @ full_b.T
            slack = full_a.shape[1] * FLOAT32_STEP
            # One more than k: a row may be compared with itself.
            if (place := near.shape[1] - self.k - 1) > 0:
                best = np.partition(near, place, axis=1)[:, place, None]
                floor = np.maximum(self.floor[tile_a, None], best) - 2 * slack
            else:
                floor = self.floor[tile_a, None] - slack
            flat = np.flatnonzero((near >= floor).reshape(-1))
        return flat // near.shape[1] + tile_a.start, flat % near.shape[1] + tile_b.start

    def _score(self, other: JoinBlock, rows: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        for first in range(0, len(a), SCORED_PAIRS):
            some_a, some_b = (side[first : first + SCORED_PAIRS] for side in (a, b))
            cos = paired_cosines(self.block.vectors[some_a], other.vectors[some_b])
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


def estimate_kth_cosine(sample_ND: np.ndarray, k: int) -> float:
    """A cosine that the k-th best of most rows will exceed; -1 for a sample of at most k rows.

    A low estimate: the sample has fewer rows than the whole side.
    """
    unit = normalize_rows(sample_ND)
    cos = unit @ unit.T
    np.fill_diagonal(cos, -1)
    place = max(0, len(sample_ND) - k)
    if not place:
        return -1.0
    return float(np.median(np.partition(cos, place - 1, axis=1)[:, place - 1]))
