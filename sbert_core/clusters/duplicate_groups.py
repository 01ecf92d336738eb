"""Large groups of rows with equal vectors, of which one row stands in the pairs.

All members share all edges, and reach each other. So the first of them in the order of keeping can
speak for the group: if it is kept, it removes the others; if a kept row removes it, that row
removes them all. Only the witness of a member may differ: a row kept later than the first member,
but before this one, may be nearer.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sbert_core.clusters.leaders import Decision
from sbert_core.join.bounded import Edges


def spoken_for(
    edges: Edges, groups: Sequence[np.ndarray], rank: np.ndarray, num_protected: int
) -> Edges:
    """The same edges, where one member of each group stands for whichever stood for it."""
    if not groups:
        return edges
    speaker = np.arange(len(rank), dtype=edges.a.dtype)
    for members in groups:
        speaker[members] = _speaker(members, rank, num_protected)
    return Edges(speaker[edges.a], speaker[edges.b], edges.cos)


def with_members(
    decision: Decision,
    edges: Edges,
    groups: Sequence[np.ndarray],
    rank: np.ndarray,
    num_protected: int,
) -> Decision:
    """Decide the members that nobody spoke of. edges: those of `spoken_for`."""
    if not groups:
        return decision
    is_kept, witness, cos = decision.is_kept.copy(), decision.witness.copy(), decision.cos.copy()
    silent = []
    for members in groups:
        speaker = _speaker(members, rank, num_protected)
        others = members[(members != speaker) & (rank[members] >= num_protected)]
        is_kept[others] = False
        silent.append((speaker, members, others))
    for speaker, members, others in silent:
        near = _neighbours(speaker, edges)
        same = members[is_kept[members]]
        other = np.concatenate([near.b[is_kept[near.b]], same])
        near_cos = np.concatenate([near.cos[is_kept[near.b]], np.ones(len(same), np.float32)])
        witness[others], cos[others] = _nearest_before(others, other, near_cos, rank)
    return replace(decision, is_kept=is_kept, witness=witness, cos=cos)


def _speaker(members: np.ndarray, rank: np.ndarray, num_protected: int) -> int:
    """The first in the order; of several protected ones the smallest, as ties go."""
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
