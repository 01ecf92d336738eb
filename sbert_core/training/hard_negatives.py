"""Queries, their answers and candidates -> the closest candidates that do not answer the query.

In:  unit vectors, keys of texts, and a stream of candidate blocks.
Out: for each query the rows of its hardest negatives, the closest first; -1 where there are none.

Guards against unmarked answers: a candidate must be less similar to the query than its answer is,
by a margin; it must not be a near-copy of the answer; and it must not be an answer of the same
query anywhere in the data. They apply before the best are chosen, so the choice is exact and
independent of the order of blocks.

Shapes: Q queries, C candidates of a block, D dimensions, K negatives.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Guards:
    """Limits of a candidate's cosines.

    margin: how far its cosine with the query is below the answer's, at least.
    ceiling: its cosine with the answer is below this.
    """

    margin: float = 0.05
    ceiling: float = 0.9


class HardNegatives:
    """The hardest negatives of some queries among the candidates so far.

    row_QK: their rows in the data, the closest first; -1 where fewer passed the guards.
    """

    def __init__(
        self,
        query_QD: np.ndarray,
        answer_QD: np.ndarray,
        query_keys: np.ndarray,
        answers: "KnownAnswers",
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
        self.row_QK = np.full((len(query_QD), num_negatives), -1, np.int64)

    def add(self, candidate_CD: np.ndarray, keys: np.ndarray, rows: np.ndarray) -> None:
        """Add a block of candidates: their vectors, text keys and rows in the data."""
        cos_QC = self.query_QD @ candidate_CD.T
        is_bad_QC = cos_QC > self.limit_Q[:, None]
        is_bad_QC |= self.answer_QD @ candidate_CD.T >= self.guards.ceiling
        is_bad_QC |= self.answers.contains(self.query_keys, keys)
        cos_QC[is_bad_QC] = -np.inf
        cos = np.hstack([self.cos_QK, cos_QC])
        row = np.hstack([self.row_QK, np.broadcast_to(rows, cos_QC.shape)])
        row = np.where(np.isneginf(cos), -1, row)
        # The closest first; of equal cosines the first in the data.
        order = np.lexsort((row, -cos))[:, : self.cos_QK.shape[1]]
        self.cos_QK = np.take_along_axis(cos, order, axis=1)
        self.row_QK = np.take_along_axis(row, order, axis=1)


class KnownAnswers:
    """Which texts answer which query, by their keys, over all rows of the data."""

    def __init__(self, query_keys: np.ndarray, answer_keys: np.ndarray) -> None:
        order = np.lexsort((answer_keys, query_keys))
        self.query_keys, self.answer_keys = query_keys[order], answer_keys[order]

    def contains(self, query_keys: np.ndarray, candidate_keys: np.ndarray) -> np.ndarray:
        """(Q, C): is the candidate a known answer of the query?"""
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


def is_first_occurrence(keys: np.ndarray) -> np.ndarray:
    """Is a row the first with its key? Only those are candidates: negatives are distinct."""
    is_first = np.zeros(len(keys), bool)
    is_first[np.unique(keys, return_index=True)[1]] = True
    return is_first
