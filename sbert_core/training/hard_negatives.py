"""Queries, their answers and candidates -> the closest candidates that are safely no answers.

In:  unit vectors, keys that name texts, and a stream of candidate blocks.
Out: for each query the places of its hardest negatives, the closest first; -1 where there are none.

Guards against answers nobody marked: a candidate must be less similar to the query than its answer
is, by a margin; it must not be a near-copy of the answer; and no text that is an answer of the same
query anywhere in the data is a candidate. They apply before the best are chosen, so the choice is
exact, whatever the order of blocks.

Shapes: Q queries, C candidates of a block, D dimensions, K negatives.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Guards:
    """margin: in cosine, below the answer's. ceiling: cosine with the answer itself."""

    margin: float = 0.05
    ceiling: float = 0.9


class HardNegatives:
    """The best candidates so far."""

    def __init__(
        self,
        query_QD: np.ndarray,
        answer_QD: np.ndarray,
        query_keys: np.ndarray,
        answers: "Answers",
        num_negatives: int,
        guards: Guards,
    ) -> None:
        self.query_QD = query_QD
        self.answer_QD = answer_QD
        self.query_keys = query_keys
        self.answers = answers
        self.guards = guards
        self.limit_Q = np.einsum("qd,qd->q", query_QD, answer_QD) - guards.margin
        self.cos_QK = np.full((len(query_QD), num_negatives), -np.inf, np.float32)
        self.place_QK = np.full((len(query_QD), num_negatives), -1, np.int64)

    def add(self, candidate_CD: np.ndarray, keys: np.ndarray, places: np.ndarray) -> None:
        """Take a block of candidates into account; `places` are their numbers in the data."""
        cos_QC = self.query_QD @ candidate_CD.T
        is_bad_QC = cos_QC > self.limit_Q[:, None]
        is_bad_QC |= self.answer_QD @ candidate_CD.T >= self.guards.ceiling
        is_bad_QC |= self.answers.contain(self.query_keys, keys)
        cos_QC[is_bad_QC] = -np.inf
        cos = np.hstack([self.cos_QK, cos_QC])
        place = np.hstack([self.place_QK, np.broadcast_to(places, cos_QC.shape)])
        place = np.where(np.isneginf(cos), -1, place)
        # The closest first; of equals the one that stands first in the data.
        order = np.lexsort((place, -cos))[:, : self.cos_QK.shape[1]]
        self.cos_QK = np.take_along_axis(cos, order, axis=1)
        self.place_QK = np.take_along_axis(place, order, axis=1)


class Answers:
    """Which texts answer which query, by keys, over all rows of the data."""

    def __init__(self, query_keys: np.ndarray, answer_keys: np.ndarray) -> None:
        order = np.lexsort((answer_keys, query_keys))
        self.query_keys, self.answer_keys = query_keys[order], answer_keys[order]

    def contain(self, query_keys: np.ndarray, candidate_keys: np.ndarray) -> np.ndarray:
        """A (Q, C) table: is the candidate a known answer of the query?"""
        found = np.zeros((len(query_keys), len(candidate_keys)), bool)
        first = np.searchsorted(self.query_keys, query_keys)
        last = np.searchsorted(self.query_keys, query_keys, side="right")
        order = np.argsort(candidate_keys, kind="stable")
        ordered = candidate_keys[order]
        for row, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            for key in self.answer_keys[a:b]:
                left = np.searchsorted(ordered, key)
                right = np.searchsorted(ordered, key, side="right")
                found[row, order[left:right]] = True
        return found


def first_places(keys: np.ndarray) -> np.ndarray:
    """Is a row the first with its key? Only those are candidates: negatives are distinct texts."""
    is_first = np.zeros(len(keys), bool)
    is_first[np.unique(keys, return_index=True)[1]] = True
    return is_first
