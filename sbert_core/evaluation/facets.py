"""Argument-facet similarity: pairs of arguments, scored 0-5, from a few topics.

The paper reports ten folds, and tests on a topic that was not trained on. An encoder that is only
evaluated has no training part: the means over folds and topics then show how even its score is.
"""

import numpy as np

from sbert_core.evaluation.correlation import pearson, spearman

FOLDS = 10


def facet_scores(
    similarity: np.ndarray, score: np.ndarray, topic: np.ndarray, seed: int = 0
) -> dict[str, float]:
    """Means of Pearson and Spearman x 100 over ten folds, and over topics."""
    shuffled = np.random.default_rng(seed).permutation(len(score))
    folds = np.array_split(shuffled, FOLDS)
    topics = [np.flatnonzero(topic == name) for name in np.unique(topic)]
    return {
        f"{name}_{part}": float(np.mean([measure(similarity[r], score[r]) for r in rows]))
        for part, rows in (("10_fold", folds), ("cross_topic", topics))
        for name, measure in (("pearson", pearson), ("spearman", spearman))
    }
