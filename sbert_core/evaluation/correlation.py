"""Similarities of pairs against what people said: Spearman and Pearson x 100.

A data set may have subsets (years of SemEval have five or so). The paper scores all pairs together
(`all`); others average over subsets (`mean`) or weigh them by their pairs (`wmean`).
"""

from collections.abc import Callable
from enum import StrEnum

import numpy as np
from scipy import stats


class Aggregate(StrEnum):
    """How subsets of one data set become one number."""

    ALL = "all"
    MEAN = "mean"
    WEIGHTED_MEAN = "wmean"


def spearman(similarity: np.ndarray, score: np.ndarray) -> float:
    """100 x rank correlation; 0 where one side is constant and there is nothing to rank."""
    return _percent(stats.spearmanr, similarity, score)


def pearson(similarity: np.ndarray, score: np.ndarray) -> float:
    return _percent(stats.pearsonr, similarity, score)


def _percent(correlate: Callable, similarity: np.ndarray, score: np.ndarray) -> float:
    if len(score) < 2 or np.ptp(similarity) == 0 or np.ptp(score) == 0:
        return 0.0
    return 100 * float(correlate(similarity, score).statistic)


def aggregated(
    measure: Callable[[np.ndarray, np.ndarray], float],
    similarity: np.ndarray,
    score: np.ndarray,
    subset: np.ndarray | None,
    how: Aggregate,
) -> float:
    """`measure` over subsets, made one number."""
    if subset is None or how is Aggregate.ALL:
        return measure(similarity, score)
    parts = [np.flatnonzero(subset == name) for name in np.unique(subset)]
    weights = [len(rows) if how is Aggregate.WEIGHTED_MEAN else 1 for rows in parts]
    values = [measure(similarity[rows], score[rows]) for rows in parts]
    return float(np.average(values, weights=weights))
