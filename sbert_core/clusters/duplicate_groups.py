"""Large groups of rows with equal vectors, which have one row in the pairs.

All members of a group share all edges and reach each other, so one of them can be decided for all:
the representative, first in the order of keeping. If it is kept, it removes the others; if a kept
row removes it, that row removes them all. Only the witness of a member may differ: a row kept later
than the representative, but before this member, may be nearer.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sbert_core.clusters.leaders import Decision
from sbert_core.join.bounded import Edges


def collapse_groups(
    edges: Edges, groups: Sequence[np.ndarray], rank: np.ndarray, num_protected: int
) -> Edges:
    """The edges with every member of a group replaced by the group's representative.

    groups: rows of each. rank, num_protected: as in `select_leaders`.
    """
    if not groups:
        return edges
    stand_in = np.arange(len(rank), dtype=edges.a.dtype)
    for members in groups:
        stand_in[members] = _representative(members, rank, num_protected)
    return Edges(stand_in[edges.a], stand_in[edges.b], edges.cos)


def expand_decision(
    decision: Decision,
    edges: Edges,
    groups: Sequence[np.ndarray],
    rank: np.ndarray,
    num_protected: int,
) -> Decision:
    """Extend the decision to group members that have no edges.

    edges: those of `collapse_groups`, on which the decision was made.
    """
    if not groups:
        return decision
    is_kept, witness, cos = decision.is_kept.copy(), decision.witness.copy(), decision.cos.copy()
    undecided = []
    for members in groups:
        first = _representative(members, rank, num_protected)
        others = members[(members != first) & (rank[members] >= num_protected)]
        is_kept[others] = False
        undecided.append((first, members, others))
    for first, members, others in undecided:
        near = _neighbours(first, edges)
        same = members[is_kept[members]]
        other = np.concatenate([near.b[is_kept[near.b]], same])
        near_cos = np.concatenate([near.cos[is_kept[near.b]], np.ones(len(same), np.float32)])
        witness[others], cos[others] = _nearest_before(others, other, near_cos, rank)
    return replace(decision, is_kept=is_kept, witness=witness, cos=cos)


def _representative(members: np.ndarray, rank: np.ndarray, num_protected: int) -> int:
    """The first in the order; of several protected members the smallest, as ties are broken."""
    protected = members[rank[members] < num_protected]
    return int(protected.min() if len(protected) else members[rank[members].argmin()])


def _neighbours(row: int, edges: Edges) -> Edges:
    own = np.flatnonzero((edges.a == row) | (edges.b == row))
    a, b = edges.a[own], edges.b[own]
    return Edges(np.full(len(own), row), np.where(a == row, b, a), edges.cos[own])


def _nearest_before(
    rows: np.ndarray, other: np.ndarray, cos: np.ndarray, rank: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each row the most similar of the others before it; of equal ones the smallest id."""
    order = np.argsort(rank[other], kind="stable")
    other, cos = other[order], cos[order]
    best = np.zeros(len(other), np.int64)
    for n in range(1, len(other)):
        last = best[n - 1]
        is_better = (cos[n], -other[n]) > (cos[last], -other[last])
        best[n] = n if is_better else last
    nearest = best[np.searchsorted(rank[other], rank[rows]) - 1]
    return other[nearest], cos[nearest]
