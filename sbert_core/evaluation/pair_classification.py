"""Similarities of pairs, and whether each is a match -> scores of a threshold classifier.

In:  one similarity and one truth per pair.
Out: the best accuracy and the best F1 over all thresholds, and average precision, x 100.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class PairScores:
    """Scores x 100. Best thresholds are chosen on the pairs they are scored on, as is usual."""

    accuracy: float
    accuracy_threshold: float
    f1: float
    precision: float
    recall: float
    f1_threshold: float
    average_precision: float


def pair_scores(similarity: np.ndarray, is_match: np.ndarray) -> PairScores:
    """Scores over all thresholds; pairs of equal similarity fall on the same side of each."""
    is_match = np.asarray(is_match, bool)
    order = np.argsort(-similarity, kind="stable")
    ordered, truth = similarity[order], is_match[order]
    is_cut = np.append(ordered[1:] != ordered[:-1], True)
    num_called = np.flatnonzero(is_cut) + 1
    num_hits = np.cumsum(truth)[is_cut]
    num_true = int(truth.sum())
    # A threshold above all similarities is a candidate too.
    called, hits = np.append(0, num_called), np.append(0, num_hits)
    right = hits + (len(truth) - num_true) - (called - hits)
    best = int(np.argmax(right))
    precision = num_hits / num_called
    recall = num_hits / max(1, num_true)
    f1 = 2 * num_hits / (num_called + num_true)
    top = int(np.argmax(f1))
    return PairScores(
        accuracy=100 * right[best] / len(truth),
        accuracy_threshold=_between(ordered, int(called[best])),
        f1=100 * f1[top],
        precision=100 * precision[top],
        recall=100 * recall[top],
        f1_threshold=_between(ordered, int(num_called[top])),
        average_precision=100 * float(np.sum(np.diff(recall, prepend=0.0) * precision)),
    )


def _between(ordered: np.ndarray, num_called: int) -> float:
    """A threshold that the first `num_called` similarities reach, and no others."""
    if num_called == 0:
        return float(np.nextafter(ordered[0], np.inf))
    if num_called == len(ordered):
        return float(ordered[-1])
    return float((ordered[num_called - 1] + ordered[num_called]) / 2)


def triplet_accuracy(near: np.ndarray, far: np.ndarray) -> float:
    """Percentage of triplets whose positive is more similar to the anchor than the negative."""
    return 100 * float(np.mean(near > far))


def class_accuracy(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Percentage of rows whose class is right."""
    return 100 * float(np.mean(predicted == truth))
