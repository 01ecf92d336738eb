"""Vectors -> topics to browse by: centroids, the topic of each row, words that tell topics apart.

In:  unit vectors, and texts of some rows of each topic.
Out: a topic for every row; for each topic the words that are frequent in it and rare elsewhere.
Gives up: k-means finds round groups of about one size. Topics are for reading, not for decisions.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sbert_core.join.kmeans import spherical_kmeans

NUM_STEPS = 20  # of k-means
ROWS_PER_TOPIC = 256  # to learn a centroid from
WORD = re.compile(r"[^\W\d_]{2,}")
MAX_WORDS = 6
MAX_TOPIC_SHARE = 0.5  # a word of more than half of the topics does not tell them apart


@dataclass(frozen=True, slots=True)
class TopicModel:
    """Unit centroids, K x D."""

    centroids: np.ndarray

    @classmethod
    def fit(cls, unit_ND: np.ndarray, num_topics: int, seed: int) -> "TopicModel":
        """Learn centroids from a sample of unit vectors."""
        return cls(
            spherical_kmeans(
                unit_ND, num_topics, seed, num_steps=NUM_STEPS, rows_per_centroid=ROWS_PER_TOPIC
            )
        )

    def assign(self, unit_ND: np.ndarray) -> np.ndarray:
        """The topic of each row, int32."""
        return np.asarray(np.argmax(unit_ND @ self.centroids.T, axis=1), np.int32)


def extract_keywords(texts_by_topic: Sequence[Sequence[str]]) -> list[list[str]]:
    """For each topic the words of most weight: share of its texts x rarity among topics."""
    counts = [
        Counter(word for text in texts for word in set(WORD.findall(text.lower())))
        for texts in texts_by_topic
    ]
    spread = Counter(word for words in counts for word in words)
    max_topics = max(2.0, MAX_TOPIC_SHARE * len(counts))
    chosen = []
    for texts, words in zip(texts_by_topic, counts, strict=True):
        weight = {
            word: count / len(texts) * np.log(1 + len(counts) / spread[word])
            for word, count in words.items()
            if spread[word] <= max_topics and (count > 1 or len(texts) == 1)
        }
        best = sorted(weight, key=lambda word: (-weight[word], word))
        chosen.append(best[:MAX_WORDS])
    return chosen
