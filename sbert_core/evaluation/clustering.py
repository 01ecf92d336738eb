"""Predicted groups against true ones: pair precision, recall and F1, and the adjusted Rand index.

The cost is linear in rows: pairs are counted from the sizes of groups and their overlaps.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class GroupScores:
    """Shares of pairs x 100; `rand` (adjusted) is 0 for random groups and 100 for the true ones."""

    precision: float
    recall: float
    f1: float
    rand: float


def group_scores(found: np.ndarray, truth: np.ndarray) -> GroupScores:
    """Scores of predicted groups; both arrays hold one group number per row."""
    _, found = np.unique(found, return_inverse=True)
    _, truth = np.unique(truth, return_inverse=True)
    overlap = np.unique(found.astype(np.int64) * (truth.max() + 1) + truth, return_counts=True)[1]
    both = _pairs(overlap)
    called, true = _pairs(np.bincount(found)), _pairs(np.bincount(truth))
    total = len(truth) * (len(truth) - 1) / 2
    by_chance = called * true / total if total else 0.0
    most = (called + true) / 2
    precision = both / called if called else 1.0
    recall = both / true if true else 1.0
    return GroupScores(
        precision=100 * precision,
        recall=100 * recall,
        f1=100 * (2 * both / (called + true) if called + true else 1.0),
        rand=100 * ((both - by_chance) / (most - by_chance) if most != by_chance else 1.0),
    )


def _pairs(sizes: np.ndarray) -> float:
    sizes = sizes.astype(np.float64)
    return float((sizes * (sizes - 1) / 2).sum())
