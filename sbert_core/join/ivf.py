"""IVF partition: rows near the same centroid meet; rows near a border also probe other cells.

In:  the leading coordinates of rotated unit vectors (see `bounded`).
Out: the home cell of each row, and the cells it probes. A pair is met if one of its rows is
     assigned to a cell that the other is assigned to or probes.
Gives up: pairs across a border that neither row probes. With a margin m a row probes every cell
     whose centroid is at most m less similar than that of its home cell; with a margin of 2 every
     row probes every cell and nothing is given up.

Shapes: N rows, L leading dimensions, C cells, P pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sbert_core.join.bounded import FLOAT32_STEP
from sbert_core.join.kmeans import spherical_kmeans

ROWS_PER_CELL = 48  # to learn a centroid from
NUM_STEPS = 8  # of k-means
NO_PROBES = -1.0  # a margin at which rows stay in their home cell, even if another is as near
SCORED_ROWS = 2048  # at a time: 16 MB of similarities for 2000 cells


@dataclass(frozen=True, slots=True)
class IvfPartition:
    """Cells by their unit centroids."""

    centroids: np.ndarray  # (C, L) float32

    @classmethod
    def fit(cls, sample_NL: np.ndarray, num_cells: int, seed: int) -> "IvfPartition":
        """Learn cells from a sample by spherical k-means."""
        unit = sample_NL / _norms(sample_NL)
        return cls(
            spherical_kmeans(
                unit, num_cells, seed, num_steps=NUM_STEPS, rows_per_centroid=ROWS_PER_CELL
            )
        )

    @property
    def num_cells(self) -> int:
        """Cells, empty ones included."""
        return len(self.centroids)

    def assign(self, leading_NL: np.ndarray) -> np.ndarray:
        """The home cell of each row."""
        homes = [cos.argmax(axis=1) for _, cos in self._similarities(leading_NL)]
        return np.concatenate([np.empty(0, np.int64), *homes])

    def probe_cells(
        self, leading_NL: np.ndarray, low: float, high: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows and the cells they probe: less similar than home by more than low, at most high.

        Home cells are left out.
        """
        rows, cells = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for first, cos in self._similarities(leading_NL):
            home = cos.argmax(axis=1)
            best = cos[np.arange(len(cos)), home]
            cos[np.arange(len(cos)), home] = -np.inf
            gap = best[:, None] - cos
            row, cell = np.nonzero((gap > low) & (gap <= high))
            rows.append(row + first)
            cells.append(cell)
        return np.concatenate(rows), np.concatenate(cells)

    def required_margins(self, a_PL: np.ndarray, b_PL: np.ndarray) -> np.ndarray:
        """A margin at which each pair is met, hardly above the smallest; 0 in the same cell."""
        (home_a, best_a), (home_b, best_b) = self._best(a_PL), self._best(b_PL)
        a_gap = best_a - np.einsum("pl,pl->p", a_PL, self.centroids[home_b])
        b_gap = best_b - np.einsum("pl,pl->p", b_PL, self.centroids[home_a])
        # Probes are computed by a matrix product, whose sums end in other bits than these.
        slack = 2 * (a_PL.shape[1] + 4) * FLOAT32_STEP
        return np.where(home_a == home_b, 0.0, np.minimum(a_gap, b_gap) + slack)

    def _best(self, leading_NL: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        home = self.assign(leading_NL)
        return home, np.einsum("pl,pl->p", leading_NL, self.centroids[home])

    def _similarities(self, leading_NL: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """The first row of each slice, and the products of its rows with all centroids."""
        for first in range(0, len(leading_NL), SCORED_ROWS):
            yield first, leading_NL[first : first + SCORED_ROWS] @ self.centroids.T


def margin_for_recall(margin: np.ndarray, weight: np.ndarray, recall: float) -> float:
    """The margin at which that share of the weight of some pairs is met.

    margin: what each pair requires. weight: of each pair.
    """
    order = np.argsort(margin)
    met = np.cumsum(weight[order])
    if not len(met) or not met[-1]:
        return 0.0
    place = int(np.searchsorted(met, recall * met[-1]))
    return max(0.0, float(margin[order][min(place, len(order) - 1)]))


def default_num_cells(num_rows: int) -> int:
    """Twice the root: finding the home cell then costs about as much as joining its rows."""
    return max(1, min(num_rows, int(round(2 * num_rows**0.5))))


def _norms(rows: np.ndarray) -> np.ndarray:
    norms: np.ndarray = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return norms
