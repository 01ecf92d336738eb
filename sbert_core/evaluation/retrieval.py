"""Ranked documents of queries, and which ones answer -> nDCG, MRR and recall, x 100."""

from collections.abc import Mapping, Sequence

import numpy as np

DEPTH = 10
RECALLS = (1, 10, 100)


def retrieval_scores(
    ranked: Sequence[Sequence[int]], relevant: Sequence[Mapping[int, float]]
) -> dict[str, float]:
    """Means over queries, by name of the measure.

    ranked: documents of each query, the best first, at least 100 where there are so many.
    relevant: gains of each query's relevant documents; the gain of others is 0.
    """
    scores: dict[str, list[float]] = {}
    for documents, gains in zip(ranked, relevant, strict=True):
        found = [gains.get(document, 0.0) for document in documents]
        ideal = sorted(gains.values(), reverse=True)
        best = discounted_gain(ideal[:DEPTH])
        first = next((i for i, gain in enumerate(found[:DEPTH]) if gain > 0), None)
        num_answers = sum(gain > 0 for gain in gains.values())
        scores.setdefault(f"ndcg@{DEPTH}", []).append(discounted_gain(found[:DEPTH]) / best)
        scores.setdefault(f"mrr@{DEPTH}", []).append(0.0 if first is None else 1 / (first + 1))
        for k in RECALLS:
            num_found = sum(gain > 0 for gain in found[:k])
            scores.setdefault(f"recall@{k}", []).append(num_found / num_answers)
    return {name: 100 * float(np.mean(values)) for name, values in scores.items()}


def discounted_gain(gains: Sequence[float]) -> float:
    """Sum of gains, each divided by log2 of its rank + 1."""
    places = np.arange(2, len(gains) + 2)
    return float(np.sum(np.asarray(gains, np.float64) / np.log2(places)))
