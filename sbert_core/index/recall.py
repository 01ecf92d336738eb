"""Hits of an index against exact ones -> recall with a confidence interval.

A query's recall@k is the share of the k best cosines that were found; a hit as good as the k-th
best counts, whichever of several equal rows it is. Queries are the sample, not single hits: the
misses of one query come together.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from sbert_core.index.hits import Hits

# Cosines of one pair differ in the last bits between a graph's loop and a matrix product.
COS_SLACK = 1e-5


@dataclass(frozen=True, slots=True)
class Recall:
    """Mean recall over queries, and the interval that holds the true one in 95 of 100 samples."""

    value: float
    low: float
    high: float
    num_queries: int


def query_recalls(found: Hits, exact: Hits, k: int) -> np.ndarray:
    """The recall@k of each query; 1 where there is nothing to find.

    found: hits of the index, exact: those of brute force, both with at least k places.
    """
    num_true = (exact.rows[:, :k] >= 0).sum(1)
    last = np.take_along_axis(exact.cos, np.maximum(num_true - 1, 0)[:, None], 1)
    good = (found.rows[:, :k] >= 0) & (found.cos[:, :k] >= last - COS_SLACK)
    return np.where(num_true, good.sum(1) / np.maximum(num_true, 1), 1.0)


def estimate_recall(recalls: np.ndarray, k: int, confidence: float = 0.95) -> Recall:
    """Mean and interval of per-query recalls@k.

    Wilson's interval for a share, with as many trials as the spread of queries is worth: between
    one per query (all or nothing) and k (each hit for itself). One more query of recall 0.5 keeps
    the spread of a sample without misses above zero.
    """
    num_queries = len(recalls)
    z = float(norm.ppf(0.5 + confidence / 2))
    mean = float(recalls.mean())
    padded = np.append(recalls, 0.5)
    share, spread = float(padded.mean()), float(padded.var(ddof=1))
    worth = share * (1 - share) / spread if spread else 1.0
    trials = num_queries * min(max(worth, 1.0), k)
    middle = (mean + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * np.sqrt(mean * (1 - mean) / trials + z**2 / (4 * trials**2))
    low, high = max(0.0, float(middle - half)), min(1.0, float(middle + half))
    return Recall(mean, low, high, num_queries)
