"""Cells: rows near the same centroid meet; rows near a border visit the cells behind it.

In:  the leading dimensions of turned unit vectors (see join).
Out: the home cell of each row, and the cells it visits. A pair is met if one of its rows lives
     where the other lives or visits.
Gives up: pairs across a border that neither row visits. The margin says how far a border reaches:
     a row visits every cell whose centroid is at most that much less near than its home's. With a
     margin of 2 every row visits every cell and nothing is given up.

Shapes: N rows, L leading dimensions, C cells.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sbert_core.join.bounded import FLOAT32_STEP
from sbert_core.join.kmeans import unit_means

ROWS_PER_CELL = 48  # to learn a centroid from
STEPS = 8
NO_VISITS = -1.0  # a margin at which rows stay at home, even if another cell is as near
NEAR_ROWS = 2048  # at a time: 16 MB for 2000 cells


@dataclass(frozen=True, slots=True)
class Cells:
    """Unit centroids."""

    centroids: np.ndarray  # (C, L) float32

    @classmethod
    def of(cls, sample_NL: np.ndarray, number: int, seed: int) -> "Cells":
        unit = sample_NL / _lengths(sample_NL)
        return cls(unit_means(unit, number, seed, steps=STEPS, rows_per_mean=ROWS_PER_CELL))

    @property
    def number(self) -> int:
        return len(self.centroids)

    def homes(self, leading_NL: np.ndarray) -> np.ndarray:
        homes = [near.argmax(axis=1) for _, near in self._near(leading_NL)]
        return np.concatenate([np.empty(0, np.int64), *homes])

    def visits(self, leading_NL: np.ndarray, low: float, high: float) -> tuple[np.ndarray, ...]:
        """Rows, and cells beside their homes that are less near by more than low, at most high."""
        rows, cells = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for first, near in self._near(leading_NL):
            home = near.argmax(axis=1)
            best = near[np.arange(len(near)), home]
            near[np.arange(len(near)), home] = -np.inf
            gap = best[:, None] - near
            row, cell = np.nonzero((gap > low) & (gap <= high))
            rows.append(row + first)
            cells.append(cell)
        return np.concatenate(rows), np.concatenate(cells)

    def needed_margins(self, a_PL: np.ndarray, b_PL: np.ndarray) -> np.ndarray:
        """A margin at which each of P pairs is met, hardly above the least; 0 in the same cell."""
        (home_a, best_a), (home_b, best_b) = self._best(a_PL), self._best(b_PL)
        a_visits = best_a - np.einsum("pl,pl->p", a_PL, self.centroids[home_b])
        b_visits = best_b - np.einsum("pl,pl->p", b_PL, self.centroids[home_a])
        # Visits are told by a matrix product, and its sums end in other bits than these.
        slack = 2 * (a_PL.shape[1] + 4) * FLOAT32_STEP
        return np.where(home_a == home_b, 0.0, np.minimum(a_visits, b_visits) + slack)

    def _best(self, leading_NL: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        home = self.homes(leading_NL)
        return home, np.einsum("pl,pl->p", leading_NL, self.centroids[home])

    def _near(self, leading_NL: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        for first in range(0, len(leading_NL), NEAR_ROWS):
            yield first, leading_NL[first : first + NEAR_ROWS] @ self.centroids.T


def margin_for(margin: np.ndarray, weight: np.ndarray, aim: float) -> float:
    """The margin at which that share of the weight of some pairs is met."""
    order = np.argsort(margin)
    met = np.cumsum(weight[order])
    if not len(met) or not met[-1]:
        return 0.0
    place = int(np.searchsorted(met, aim * met[-1]))
    return max(0.0, float(margin[order][min(place, len(order) - 1)]))


def num_cells(num_rows: int) -> int:
    """Twice the root: looking for a home then costs about as much as meeting its rows."""
    return max(1, min(num_rows, round(2 * num_rows**0.5)))


def _lengths(rows: np.ndarray) -> np.ndarray:
    return np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
