"""Vectors and true groups -> scores of duplicate detection at every cosine threshold.

In:  one vector and one true group per row.
Out: precision, recall and F1 at each threshold, from pairs counted in bins by their cosine, and the
     scores of single-link groups at the best one. Memory is one block of cosines, not all pairs.

Shapes: N rows, D dimensions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sbert_core.evaluation.clustering import GroupScores, group_scores

BLOCK = 2048
BINS = 200  # of cosines from -1 to 1: thresholds in steps of 0.01


@dataclass(frozen=True, slots=True)
class ThresholdScores:
    """Shares of pairs x 100 at one threshold."""

    threshold: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class DuplicateScores:
    """best: the threshold with the largest F1. curve: all thresholds. groups: those at the best."""

    best: ThresholdScores
    curve: list[ThresholdScores]
    groups: GroupScores


def threshold_scores(unit_ND: np.ndarray, group: np.ndarray) -> list[ThresholdScores]:
    """Scores at each threshold, from -1 up."""
    same, other = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    for first, cos, is_pair in _blocks(unit_ND):
        bins = np.clip(((cos + 1) * (BINS / 2)).astype(np.int64), 0, BINS - 1)
        rows = group[first : first + len(cos)]
        is_same = rows[:, None] == group[None, first:]
        same += np.bincount(bins[is_same & is_pair], minlength=BINS)
        other += np.bincount(bins[~is_same & is_pair], minlength=BINS)
    hits = np.cumsum(same[::-1])[::-1]
    called = hits + np.cumsum(other[::-1])[::-1]
    return [
        ThresholdScores(
            threshold=round(-1 + 2 * number / BINS, 4),
            precision=100 * float(hits[number] / called[number]) if called[number] else 100.0,
            recall=100 * float(hits[number] / max(1, hits[0])),
            f1=100 * float(2 * hits[number] / max(1, called[number] + hits[0])),
        )
        for number in range(BINS)
    ]


def single_link_groups(unit_ND: np.ndarray, threshold: float) -> np.ndarray:
    """The group of each row: rows linked by chains of pairs with a cosine from `threshold` up."""
    left, right = [], []
    for first, cos, is_pair in _blocks(unit_ND):
        a, b = np.nonzero((cos >= threshold) & is_pair)
        left.append(a + first)
        right.append(b + first)
    a, b = np.concatenate(left), np.concatenate(right)
    graph = coo_array((np.ones(len(a), np.int8), (a, b)), shape=(len(unit_ND), len(unit_ND)))
    groups: np.ndarray = connected_components(graph, directed=False)[1]
    return groups


def duplicate_scores(vectors_ND: np.ndarray, group: np.ndarray) -> DuplicateScores:
    """Scores at all thresholds, and of single-link groups at the one with the best F1."""
    norms = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    unit_ND = (vectors_ND / np.maximum(norms, 1e-12)).astype(np.float32)
    curve = threshold_scores(unit_ND, group)
    best = max(curve, key=lambda scores: scores.f1)
    groups = group_scores(single_link_groups(unit_ND, best.threshold), group)
    return DuplicateScores(best, curve, groups)


def _blocks(unit_ND: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """First row of a block, its cosines with all rows from there on, and which are pairs a < b."""
    for first in range(0, len(unit_ND), BLOCK):
        cos = unit_ND[first : first + BLOCK] @ unit_ND[first:].T
        yield first, cos, np.arange(cos.shape[0])[:, None] < np.arange(cos.shape[1])[None, :]
