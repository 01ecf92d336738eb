"""Rows with equal vectors: one of them is joined, and its pairs are expanded to the others.

In:  a digest of every row's vector, rows numbered over the whole artifact.
Out: the first row of each group, and the members of the group.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sbert_core.arrays import concat_ranges

MAX_EXPANDED_GROUP = 1000  # rows of a group whose pairs are written; a larger one stays a group
DIGEST_BYTES = 16


def digest_vectors(vectors: np.ndarray) -> np.ndarray:
    """16 bytes for each row; equal rows have equal digests."""
    positive = vectors + 0.0  # -0.0 equals 0.0 and has other bytes
    digests = b"".join(
        hashlib.blake2b(row.tobytes(), digest_size=DIGEST_BYTES).digest() for row in positive
    )
    return np.frombuffer(digests, f"S{DIGEST_BYTES}")


@dataclass(frozen=True, slots=True)
class DuplicateGroups:
    """Groups of rows with equal vectors, by their first row. A unique row is a group of one.

    Groups are addressed by their place in `first`.
    """

    first: np.ndarray  # rising
    start: np.ndarray  # of the group in `rows`
    count: np.ndarray
    rows: np.ndarray  # group by group, rising in each

    @classmethod
    def from_digests(cls, digests: np.ndarray) -> "DuplicateGroups":
        """Group rows by digest, in the order of their first rows."""
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
    def singletons(cls, num_rows: int) -> "DuplicateGroups":
        """Every row alone in its group, whether it equals another or not."""
        rows = np.arange(num_rows)
        return cls(rows, rows, np.ones(num_rows, np.int64), rows)

    @property
    def num_pairs(self) -> int:
        """Pairs inside groups that are expanded."""
        count = self.count[self.count <= MAX_EXPANDED_GROUP].astype(object)
        return int((count * (count - 1) // 2).sum()) if len(count) else 0

    def large_groups(self) -> np.ndarray:
        """Places of groups too large to be expanded."""
        return np.flatnonzero(self.count > MAX_EXPANDED_GROUP)

    def members(self, place: int) -> np.ndarray:
        """Rows of the group at a place."""
        start = self.start[place]
        return self.rows[start : start + self.count[place]]

    def member_ranges(self, first_rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For first rows: where their members begin in `rows`, and how many there are."""
        place = np.searchsorted(self.first, first_rows)
        return self.start[place], self.count[place]

    def collapse_large(self) -> "DuplicateGroups":
        """The same, with the first row alone in groups too large to be expanded."""
        return replace(self, count=np.where(self.count > MAX_EXPANDED_GROUP, 1, self.count))

    def replace_members(self, members: Mapping[int, np.ndarray]) -> "DuplicateGroups":
        """The same, with fewer members in the groups at some places."""
        count, rows = self.count.copy(), self.rows.copy()
        for place, few in members.items():
            count[place] = len(few)
            rows[self.start[place] : self.start[place] + len(few)] = few
        return replace(self, count=count, rows=rows)


def find_equal_rows(a_ND: np.ndarray, b_MD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of equal rows in a and in b. The rows of a must differ from each other."""
    keys_a, keys_b = _prefix_keys(a_ND), _prefix_keys(b_MD)
    # Nearly all rows differ in their first two numbers, so that few need a digest.
    maybe_b = np.flatnonzero(np.isin(keys_b, keys_a))
    maybe_a = np.flatnonzero(np.isin(keys_a, keys_b[maybe_b]))
    digests_a, digests_b = digest_vectors(a_ND[maybe_a]), digest_vectors(b_MD[maybe_b])
    order = np.argsort(digests_a)
    place = np.searchsorted(digests_a, digests_b, sorter=order)
    is_inside = place < len(digests_a)
    place, maybe_b, digests_b = order[place[is_inside]], maybe_b[is_inside], digests_b[is_inside]
    is_equal = digests_a[place] == digests_b
    return maybe_a[place[is_equal]], maybe_b[is_equal]


def _prefix_keys(vectors: np.ndarray) -> np.ndarray:
    """The first two numbers of each row as one 64-bit key."""
    wide = np.zeros((len(vectors), 2), np.float32)
    wide[:, : vectors.shape[1]] += vectors[:, :2]
    return wide.view(np.uint64)[:, 0]


def expand_pairs(
    a: np.ndarray,
    b: np.ndarray,
    cos: np.ndarray,
    groups_a: DuplicateGroups,
    groups_b: DuplicateGroups,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of first rows -> pairs of all members of their groups, with the same cosines."""
    start_a, count_a = groups_a.member_ranges(a)
    start_b, count_b = groups_b.member_ranges(b)
    rows_a = groups_a.rows[concat_ranges(start_a, count_a)]
    rows_b = groups_b.rows[concat_ranges(np.repeat(start_b, count_a), np.repeat(count_b, count_a))]
    return (
        np.repeat(rows_a, np.repeat(count_b, count_a)),
        rows_b,
        np.repeat(cos, count_a * count_b),
    )


def pairs_within(groups: DuplicateGroups, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs inside the groups at some places, as two arrays of rows."""
    found = [np.triu_indices(groups.count[place], 1) for place in places.tolist()]
    rows = [groups.members(place) for place in places.tolist()]
    empty = np.empty(0, np.int64)
    a = [own[pairs[0]] for own, pairs in zip(rows, found, strict=True)]
    b = [own[pairs[1]] for own, pairs in zip(rows, found, strict=True)]
    return np.concatenate([empty, *a]), np.concatenate([empty, *b])
