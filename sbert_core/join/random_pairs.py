"""How similar two random rows are: the cosines of all pairs of a sample.

In:  vectors of rows drawn at random.
Out: a histogram over [-1, 1], and the pairs that reach a floor, to be shown.
"""

from dataclasses import dataclass

import numpy as np

from sbert_core.join.bounded import SCORED_PAIRS, Edges, normalize_rows, paired_cosines

NUM_BINS = 200  # of 0.01
BLOCK_ROWS = 1024
SLACK = 1e-5  # rounding error of products in float32


@dataclass(frozen=True, slots=True)
class CosineSample:
    """Cosines of all pairs of a sample.

    histogram: pairs by bin; the last bin holds 1 itself. pairs: those that reach the floor, with
    exact cosines.
    """

    histogram: np.ndarray
    pairs: Edges

    @property
    def num_pairs(self) -> int:
        """All pairs of the sample."""
        return int(self.histogram.sum())

    @property
    def mean(self) -> float:
        """Mean cosine, to half a bin."""
        centres = (np.arange(NUM_BINS) + 0.5) * 2 / NUM_BINS - 1
        return float(centres @ self.histogram) / max(1, self.num_pairs)

    def share_above(self, cos: float) -> float:
        """The share of all pairs that reach a cosine; it must not lie below the floor."""
        return int((self.pairs.cos >= np.float32(cos)).sum()) / max(1, self.num_pairs)


def sample_cosines(vectors_ND: np.ndarray, floor: float | None) -> CosineSample:
    """Compare all pairs of a sample.

    floor: the least cosine of pairs to be returned; None: only the histogram.
    """
    unit = normalize_rows(vectors_ND).astype(np.float32)
    histogram = np.zeros(NUM_BINS, np.int64)
    found = []
    for first in range(0, len(unit), BLOCK_ROWS):
        cos = unit[first : first + BLOCK_ROWS] @ unit[first:].T
        is_pair = np.triu(np.ones(cos.shape, bool), 1)
        bins = np.clip((cos[is_pair] + 1) * (NUM_BINS / 2), 0, NUM_BINS - 1).astype(np.int64)
        histogram += np.bincount(bins, minlength=NUM_BINS)
        if floor is not None:
            near = np.argwhere(is_pair & (cos >= floor - SLACK)) + first
            found += _score_exactly(vectors_ND, near.astype(np.int32), np.float32(floor))
    kinds = (np.int32, np.int32, np.float32)
    columns = list(zip(*found, strict=True)) or [(), (), ()]
    made = [np.concatenate([np.empty(0, k), *c]) for c, k in zip(columns, kinds, strict=True)]
    return CosineSample(histogram, Edges(*made))


def _score_exactly(
    vectors_ND: np.ndarray, pairs_P2: np.ndarray, floor: np.float32
) -> list[tuple[np.ndarray, ...]]:
    """Pairs that reach the floor, some at a time: in float64 a pair takes 9 KB."""
    found: list[tuple[np.ndarray, ...]] = []
    for first in range(0, len(pairs_P2), SCORED_PAIRS):
        a, b = pairs_P2[first : first + SCORED_PAIRS].T
        cos = paired_cosines(vectors_ND[a], vectors_ND[b])
        is_near = cos >= floor
        found.append((a[is_near], b[is_near], cos[is_near]))
    return found
