"""Rows of a vectors artifact by file and position: split evenly, or sampled.

The result follows from the number of rows and the seed alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of one file of a vectors artifact.

    num_rows: of the whole file. rows: the chosen ones, by position; None: all.
    """

    path: str
    sha256: str
    num_rows: int
    rows: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Number of rows in the range."""
        return self.num_rows if self.rows is None else len(self.rows)

    def mask_without(self, rows: np.ndarray) -> np.ndarray:
        """True for each row of the range that is not among `rows` of the file."""
        own = np.arange(self.num_rows) if self.rows is None else self.rows
        return ~np.isin(own, rows)

    def take(self, places: np.ndarray) -> "RowRange":
        """Rows of the range by their positions in it."""
        return RowRange(
            self.path,
            self.sha256,
            self.num_rows,
            places if self.rows is None else self.rows[places],
        )


def split_evenly(row_ranges: Sequence[RowRange], number: int) -> list[list[RowRange]]:
    """All rows in order, in `number` lists whose sizes differ by one row at most."""
    total = sum(span.size for span in row_ranges)
    bounds = [total * n // number for n in range(number + 1)]
    parts: list[list[RowRange]] = []
    for low, high in zip(bounds, bounds[1:], strict=False):
        part, start = [], 0
        for span in row_ranges:
            first, stop = max(low - start, 0), min(high - start, span.size)
            if (first, stop) == (0, span.size):
                part.append(span)
            elif first < stop:
                part.append(span.take(np.arange(first, stop)))
            start += span.size
        parts.append(part)
    return parts


def sample_rows(
    row_ranges: Sequence[RowRange], number: int, seed: tuple[int, ...]
) -> list[RowRange]:
    """`number` random rows without repeats (all, if there are fewer), file by file."""
    total = sum(span.size for span in row_ranges)
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(total, min(number, total), replace=False))
    found, start = [], 0
    for span in row_ranges:
        own = chosen[(chosen >= start) & (chosen < start + span.size)] - start
        start += span.size
        if len(own):
            found.append(span.take(own))
    return found


def row_numbers(row_ranges: Sequence[RowRange], chosen: Sequence[RowRange]) -> np.ndarray:
    """Numbers of chosen rows among all rows of some whole files."""
    starts, start = {}, 0
    for span in row_ranges:
        starts[span.path] = start
        start += span.num_rows
    found = [starts[span.path] + span.rows for span in chosen if span.rows is not None]
    return np.concatenate([np.empty(0, np.int64), *found])
