"""Vectors -> topics to browse by: centroids, the topic of each row, words that tell topics apart.

In:  unit vectors, and texts of some rows of each topic.
Out: a topic for every row; for each topic the words that are frequent in it and rare elsewhere.
Gives up: k-means finds round heaps of about one size. Topics are for reading, not for decisions.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sbert_core.join.kmeans import unit_means

STEPS = 20
ROWS_PER_TOPIC = 256  # to learn a centroid from
WORD = re.compile(r"[^\W\d_]{2,}")
MOST_WORDS = 6
COMMON = 0.5  # of all topics; a word of more of them tells nothing


@dataclass(frozen=True, slots=True)
class Topics:
    """Unit centroids, K x D."""

    centroids: np.ndarray

    @classmethod
    def of(cls, sample: np.ndarray, number: int, seed: int) -> "Topics":
        return cls(unit_means(sample, number, seed, steps=STEPS, rows_per_mean=ROWS_PER_TOPIC))

    def nearest(self, vectors: np.ndarray) -> np.ndarray:
        return (vectors @ self.centroids.T).argmax(axis=1).astype(np.int32)


def keywords(texts_by_topic: Sequence[Sequence[str]]) -> list[list[str]]:
    """For each topic the words of most weight: share of its texts x rarity among topics."""
    found = [
        Counter(word for text in texts for word in set(WORD.findall(text.lower())))
        for texts in texts_by_topic
    ]
    spread = Counter(word for words in found for word in words)
    most = max(2.0, COMMON * len(found))
    named = []
    for texts, words in zip(texts_by_topic, found, strict=True):
        weight = {
            word: count / len(texts) * np.log(1 + len(found) / spread[word])
            for word, count in words.items()
            if spread[word] <= most and (count > 1 or len(texts) == 1)
        }
        best = sorted(weight, key=lambda word: (-weight[word], word))
        named.append(best[:MOST_WORDS])
    return named
