"""Rows with equal vectors: one of them joins for all, and its pairs are given to the others.

In:  a digest of every row's vector, rows numbered over the whole artifact.
Out: the first row of each group, and the rows it stands for.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from sbert_core.arrays import ranges

LARGEST = 1000  # rows of a group whose pairs are written; a larger one is written as a group
DIGEST_BYTES = 16


def vector_digests(vectors: np.ndarray) -> np.ndarray:
    """Equal rows have equal digests."""
    positive = vectors + 0.0  # -0.0 equals 0.0 and has other bytes
    joined = b"".join(
        hashlib.blake2b(row.tobytes(), digest_size=DIGEST_BYTES).digest() for row in positive
    )
    return np.frombuffer(joined, f"S{DIGEST_BYTES}")


@dataclass(frozen=True, slots=True)
class Alike:
    """Groups of rows, by their first row. Rows that resemble no other are groups of one."""

    first: np.ndarray  # rising
    start: np.ndarray  # of the group in `rows`
    count: np.ndarray
    rows: np.ndarray  # group by group, rising in each

    @classmethod
    def of(cls, digests: np.ndarray) -> "Alike":
        _, first, group, count = np.unique(
            digests, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        rows = np.argsort(place[group], kind="stable")
        count = count[order]
        return cls(first[order], np.cumsum(count) - count, count, rows)

    @classmethod
    def each(cls, num_rows: int) -> "Alike":
        """Every row a group of its own, whether it equals another or not."""
        rows = np.arange(num_rows)
        return cls(rows, rows, np.ones(num_rows, np.int64), rows)

    @property
    def num_pairs(self) -> int:
        """Pairs inside groups that are written as pairs."""
        count = self.count[self.count <= LARGEST].astype(object)
        return int((count * (count - 1) // 2).sum()) if len(count) else 0

    def large(self) -> np.ndarray:
        """Places of groups too large for pairs."""
        return np.flatnonzero(self.count > LARGEST)

    def members(self, place: int) -> np.ndarray:
        start = self.start[place]
        return self.rows[start : start + self.count[place]]

    def stand_for(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For first rows: where their members begin, and how many there are."""
        place = np.searchsorted(self.first, rows)
        return self.start[place], self.count[place]

    def representing(self) -> "Alike":
        """The same, where groups too large for pairs stand for their first row alone."""
        return replace(self, count=np.where(self.count > LARGEST, 1, self.count))

    def shortened(self, members: dict[int, np.ndarray]) -> "Alike":
        """The same with fewer members in the groups at some places."""
        count, rows = self.count.copy(), self.rows.copy()
        for place, few in members.items():
            count[place] = len(few)
            rows[self.start[place] : self.start[place] + len(few)] = few
        return replace(self, count=count, rows=rows)


def equal_places(a_ND: np.ndarray, b_MD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of equal rows, where the rows of a differ from each other."""
    marks_a, marks_b = _marks(a_ND), _marks(b_MD)
    # Nearly all rows differ in their first two numbers, which spares them a digest.
    maybe_b = np.flatnonzero(np.isin(marks_b, marks_a))
    maybe_a = np.flatnonzero(np.isin(marks_a, marks_b[maybe_b]))
    digests_a, digests_b = vector_digests(a_ND[maybe_a]), vector_digests(b_MD[maybe_b])
    order = np.argsort(digests_a)
    place = np.searchsorted(digests_a, digests_b, sorter=order)
    is_inside = place < len(digests_a)
    place, maybe_b, digests_b = order[place[is_inside]], maybe_b[is_inside], digests_b[is_inside]
    is_equal = digests_a[place] == digests_b
    return maybe_a[place[is_equal]], maybe_b[is_equal]


def _marks(vectors: np.ndarray) -> np.ndarray:
    """The first two numbers of each row as one."""
    wide = np.zeros((len(vectors), 2), np.float32)
    wide[:, : vectors.shape[1]] += vectors[:, :2]
    return wide.view(np.uint64)[:, 0]


def expanded(
    a: np.ndarray, b: np.ndarray, cos: np.ndarray, alike_a: Alike, alike_b: Alike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of first rows -> pairs of all rows they stand for."""
    start_a, count_a = alike_a.stand_for(a)
    start_b, count_b = alike_b.stand_for(b)
    rows_a = alike_a.rows[ranges(start_a, count_a)]
    rows_b = alike_b.rows[ranges(np.repeat(start_b, count_a), np.repeat(count_b, count_a))]
    return (
        np.repeat(rows_a, np.repeat(count_b, count_a)),
        rows_b,
        np.repeat(cos, count_a * count_b),
    )


def inner_pairs(alike: Alike, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs inside some groups."""
    found = [np.triu_indices(alike.count[place], 1) for place in places.tolist()]
    rows = [alike.members(place) for place in places.tolist()]
    empty = np.empty(0, np.int64)
    a = [own[pairs[0]] for own, pairs in zip(rows, found, strict=True)]
    b = [own[pairs[1]] for own, pairs in zip(rows, found, strict=True)]
    return np.concatenate([empty, *a]), np.concatenate([empty, *b])
