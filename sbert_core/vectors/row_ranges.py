"""Rows of a vectors artifact by file and place: cut in order, or sampled.

What is cut and sampled follows from the number of rows and the seed alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of one file of the vectors artifact; None: all of them."""

    path: str
    sha256: str
    num_rows: int
    rows: np.ndarray | None = None

    @property
    def size(self) -> int:
        return self.num_rows if self.rows is None else len(self.rows)

    def without(self, rows: np.ndarray) -> np.ndarray:
        """Which of the piece's rows are not among these."""
        own = np.arange(self.num_rows) if self.rows is None else self.rows
        return ~np.isin(own, rows)

    def only(self, places: np.ndarray) -> "Piece":
        """Rows of the piece by their places in it."""
        return Piece(
            self.path,
            self.sha256,
            self.num_rows,
            places if self.rows is None else self.rows[places],
        )


def cut(pieces: Sequence[Piece], number: int) -> list[list[Piece]]:
    """All rows in order, in parts of equal size."""
    total = sum(piece.size for piece in pieces)
    bounds = [total * n // number for n in range(number + 1)]
    parts: list[list[Piece]] = []
    for low, high in zip(bounds, bounds[1:], strict=False):
        part, start = [], 0
        for piece in pieces:
            first, stop = max(low - start, 0), min(high - start, piece.size)
            if (first, stop) == (0, piece.size):
                part.append(piece)
            elif first < stop:
                part.append(piece.only(np.arange(first, stop)))
            start += piece.size
        parts.append(part)
    return parts


def sampled(pieces: Sequence[Piece], number: int, seed: tuple[int, ...]) -> list[Piece]:
    """A sample of rows without repeats, piece by piece."""
    total = sum(piece.size for piece in pieces)
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(total, min(number, total), replace=False))
    found, start = [], 0
    for piece in pieces:
        own = chosen[(chosen >= start) & (chosen < start + piece.size)] - start
        start += piece.size
        if len(own):
            found.append(piece.only(own))
    return found


def places_of(pieces: Sequence[Piece], chosen: Sequence[Piece]) -> np.ndarray:
    """Where chosen rows stand among all rows of some whole pieces."""
    starts, start = {}, 0
    for piece in pieces:
        starts[piece.path] = start
        start += piece.num_rows
    found = [starts[piece.path] + piece.rows for piece in chosen if piece.rows is not None]
    return np.concatenate([np.empty(0, np.int64), *found])
