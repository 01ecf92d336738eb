"""A model in training -> its score on held-out rows, in percent. Larger is better."""

from dataclasses import dataclass

import numpy as np

from sbert_core.choices import ExampleFormat
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.encoder import Encoder
from sbert_core.evaluation.correlation import spearman
from sbert_core.evaluation.pair_classification import class_accuracy, triplet_accuracy
from sbert_core.evaluation.similarity import cosines, euclidean
from sbert_core.training.examples import text_keys
from sbert_core.training.hard_negatives import KnownAnswers
from sbert_core.training.losses import SoftmaxHead

QUERY_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class DevSet:
    """Held-out rows: texts role by role, and labels if the format has them."""

    kind: ExampleFormat
    texts: list[list[str]]
    labels: np.ndarray | None

    @property
    def identity(self) -> list[object]:
        """The contents for a digest; arrays as lists, since a printed array is cut short."""
        return [self.kind, self.texts, None if self.labels is None else self.labels.tolist()]

    @property
    def measure(self) -> str:
        """Name of the score."""
        return {
            ExampleFormat.SCORED: "spearman",
            ExampleFormat.PAIRS: "accuracy",
            ExampleFormat.TRIPLETS: "triplet_accuracy",
            ExampleFormat.RANKING: "first_answer_accuracy",
        }[self.kind]


def dev_score(encoder: Encoder, head: SoftmaxHead | None, rows: DevSet) -> float:
    """Dev score in percent, on unnormalised vectors. `head` classifies rows of pairs."""
    vectors = [encoder.encode(role, normalize=False) for role in rows.texts]
    match rows.kind:
        case ExampleFormat.SCORED:
            assert rows.labels is not None
            return spearman(cosines(vectors[0], vectors[1]), rows.labels)
        case ExampleFormat.PAIRS:
            assert rows.labels is not None and head is not None
            return class_accuracy(head.predict(vectors[0], vectors[1]), rows.labels)
        case ExampleFormat.TRIPLETS:
            anchor, positive, negative = vectors
            return triplet_accuracy(euclidean(anchor, positive), euclidean(anchor, negative))
        case ExampleFormat.RANKING:
            return _first_answer_accuracy(rows.texts, vectors)


def _first_answer_accuracy(texts: list[list[str]], vectors: list[np.ndarray]) -> float:
    """Percentage of queries whose closest text, among the answers of all rows, answers them."""
    queries, candidates = text_keys(texts[0]), text_keys(texts[1])
    answers = KnownAnswers(queries, candidates)
    units = [v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in vectors[:2]]
    hits = []
    for first in range(0, len(queries), QUERY_BLOCK):
        block = slice(first, first + QUERY_BLOCK)
        best = np.argmax(units[0][block] @ units[1].T, axis=1)
        hits.append(np.diagonal(answers.contains(queries[block], candidates[best])))
    return 100 * float(np.mean(np.concatenate(hits)))


def cross_dev_score(encoder: CrossEncoder, rows: DevSet) -> float:
    """Dev score of a cross-encoder in percent, on scored pairs or pairs with a class."""
    assert rows.labels is not None
    predicted = encoder.predict(list(zip(rows.texts[0], rows.texts[1], strict=True)))
    if rows.kind is ExampleFormat.SCORED:
        return spearman(predicted, rows.labels)
    return class_accuracy(predicted.argmax(1), rows.labels)
