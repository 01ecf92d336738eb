"""Edges and an order of rows -> which rows are kept, and the witness of every other (leaders).

The rule: in order, keep a row unless a row kept before it is at least as similar as the threshold;
otherwise remove it, and its witness is the most similar row kept before it. A chain of similar rows
cannot remove a row that resembles nothing kept.

Rounds decide all rows whose earlier neighbours are decided. A chain needs as many rounds as it has
links, so after some rounds the rest is decided one by one. The result is that of the rule, however
many rounds there are.
"""

from dataclasses import dataclass

import numpy as np

from sbert_core.join.bounded import Edges

ROUNDS = 50
UNDECIDED, KEPT, REMOVED = 0, 1, 2
NO_WITNESS = -1


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to each row."""

    is_kept: np.ndarray
    witness: np.ndarray  # a kept row; NO_WITNESS for rows that are kept
    cos: np.ndarray  # to the witness; 1 for rows that are kept

    @property
    def canonical(self) -> np.ndarray:
        """The kept row of each row: itself, or its witness."""
        return np.where(self.is_kept, np.arange(len(self.is_kept)), self.witness)


def select_leaders(edges: Edges, rank: np.ndarray, num_protected: int = 0) -> Decision:
    """Decide every row by the rule.

    edges: between rows numbered by id, each unordered pair once. rank: of each row in the order of
    keeping. num_protected: so many first rows of the order are kept, whatever they resemble.
    """
    num_rows = len(rank)
    is_forward = rank[edges.a] < rank[edges.b]
    first = np.where(is_forward, edges.a, edges.b)
    second = np.where(is_forward, edges.b, edges.a)
    state = np.full(num_rows, UNDECIDED, np.int8)
    state[rank < num_protected] = KEPT
    early, late = _remove_neighbours(first, second, state)
    for _ in range(ROUNDS):
        if not len(early):
            break
        waits = np.zeros(num_rows, bool)
        waits[late] = True
        state[(state == UNDECIDED) & ~waits] = KEPT
        early, late = _remove_neighbours(early, late, state)
    _decide_one_by_one(early, late, rank, state)
    witness, cos = _find_witnesses(first, second, edges.cos, state)
    return Decision(state == KEPT, witness, cos)


def _remove_neighbours(
    early: np.ndarray, late: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Remove rows with a kept neighbour; return edges between undecided rows."""
    gone = late[(state[early] == KEPT) & (state[late] == UNDECIDED)]
    state[gone] = REMOVED
    open_edges = (state[early] == UNDECIDED) & (state[late] == UNDECIDED)
    return early[open_edges], late[open_edges]


def _decide_one_by_one(
    early: np.ndarray, late: np.ndarray, rank: np.ndarray, state: np.ndarray
) -> None:
    """Apply the rule in order to undecided rows; those without an earlier neighbour are kept."""
    waits = np.zeros(len(state), bool)
    waits[late] = True
    state[(state == UNDECIDED) & ~waits] = KEPT
    order = np.argsort(rank[late], kind="stable")
    early, late = early[order], late[order]
    starts = np.flatnonzero(np.diff(late, prepend=NO_WITNESS))
    ends = [*starts[1:].tolist(), len(late)][: len(starts)]
    for start, end in zip(starts.tolist(), ends, strict=True):
        is_removed = (state[early[start:end]] == KEPT).any()
        state[late[start]] = REMOVED if is_removed else KEPT


def _find_witnesses(
    first: np.ndarray, second: np.ndarray, cos: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The most similar kept row before each removed one; of equal ones the smallest id."""
    is_reason = (state[first] == KEPT) & (state[second] == REMOVED)
    keeper, removed, cos = first[is_reason], second[is_reason], cos[is_reason]
    best = np.where(state == KEPT, np.float32(1), np.float32(-np.inf))
    np.maximum.at(best, removed, cos)
    is_best = cos == best[removed]
    witness = np.full(len(state), len(state), np.int64)
    np.minimum.at(witness, removed[is_best], keeper[is_best])
    witness[state == KEPT] = NO_WITNESS
    return witness, best
