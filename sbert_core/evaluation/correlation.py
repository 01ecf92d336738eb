"""Similarities of pairs against scores by people: Spearman and Pearson correlation x 100.

A data set may have subsets (years of SemEval have five or so). The paper scores all pairs together
(`all`); others average over subsets (`mean`) or weigh them by their pairs (`wmean`).
"""

from collections.abc import Callable

import numpy as np
from scipy import stats

from sbert_core.choices import Aggregate

# Similarities and scores of pairs -> a correlation x 100.
Correlation = Callable[[np.ndarray, np.ndarray], float]


def spearman(similarity: np.ndarray, score: np.ndarray) -> float:
    """100 x rank correlation; 0 where one side is constant."""
    if _is_constant(similarity, score):
        return 0.0
    return 100 * float(stats.spearmanr(similarity, score).statistic)


def pearson(similarity: np.ndarray, score: np.ndarray) -> float:
    """100 x linear correlation; 0 where one side is constant."""
    if _is_constant(similarity, score):
        return 0.0
    return 100 * float(stats.pearsonr(similarity, score).statistic)


def _is_constant(similarity: np.ndarray, score: np.ndarray) -> bool:
    return len(score) < 2 or bool(np.ptp(similarity) == 0 or np.ptp(score) == 0)


def aggregate_subsets(
    measure: Correlation,
    similarity: np.ndarray,
    score: np.ndarray,
    subset: np.ndarray | None,
    how: Aggregate,
) -> float:
    """`measure` of all pairs, or its mean over subsets.

    subset: the subset of each pair, None without subsets.
    """
    if subset is None or how is Aggregate.ALL:
        return measure(similarity, score)
    parts = [np.flatnonzero(subset == name) for name in np.unique(subset)]
    weights = [len(rows) if how is Aggregate.WEIGHTED_MEAN else 1 for rows in parts]
    values = [measure(similarity[rows], score[rows]) for rows in parts]
    return float(np.average(values, weights=weights))
