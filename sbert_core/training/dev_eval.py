"""A half-trained model -> one number on rows it does not learn from. Larger is better."""

from dataclasses import dataclass

import numpy as np

from sbert_core.encoder import Encoder
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.evaluation.correlation import spearman
from sbert_core.evaluation.pair_classification import class_accuracy, triplet_accuracy
from sbert_core.evaluation.similarity import cosines, euclidean
from sbert_core.training.examples import ExampleFormat, text_keys
from sbert_core.training.hard_negatives import Answers
from sbert_core.training.losses import SoftmaxHead

QUERY_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class DevRows:
    """Rows to judge by: texts role by role, and labels as the format has them."""

    kind: ExampleFormat
    texts: list[list[str]]
    labels: np.ndarray | None

    @property
    def identity(self) -> list:
        """What a fingerprint is made of; arrays as lists, since a printed array is cut short."""
        return [self.kind, self.texts, None if self.labels is None else self.labels.tolist()]

    @property
    def measure(self) -> str:
        return {
            ExampleFormat.SCORED: "spearman",
            ExampleFormat.PAIRS: "accuracy",
            ExampleFormat.TRIPLETS: "triplet_accuracy",
            ExampleFormat.RANKING: "first_answer_accuracy",
        }[self.kind]


def dev_score(encoder: Encoder, head: SoftmaxHead | None, rows: DevRows) -> float:
    """x 100, on vectors as the folder gives them."""
    vectors = [encoder.encode(role, normalize=False) for role in rows.texts]
    match rows.kind:
        case ExampleFormat.SCORED:
            assert rows.labels is not None
            return spearman(cosines(vectors[0], vectors[1]), rows.labels)
        case ExampleFormat.PAIRS:
            assert rows.labels is not None and head is not None
            return class_accuracy(head.predicted(vectors[0], vectors[1]), rows.labels)
        case ExampleFormat.TRIPLETS:
            anchor, positive, negative = vectors
            return triplet_accuracy(euclidean(anchor, positive), euclidean(anchor, negative))
        case ExampleFormat.RANKING:
            return _first_answer_accuracy(rows.texts, vectors)


def _first_answer_accuracy(texts: list[list[str]], vectors: list[np.ndarray]) -> float:
    """Share of queries whose closest answer among all is one of theirs."""
    queries, found = text_keys(texts[0]), text_keys(texts[1])
    answers = Answers(queries, found)
    units = [v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in vectors[:2]]
    hits = []
    for first in range(0, len(queries), QUERY_BLOCK):
        block = slice(first, first + QUERY_BLOCK)
        best = np.argmax(units[0][block] @ units[1].T, axis=1)
        hits.append(np.diagonal(answers.contain(queries[block], found[best])))
    return 100 * float(np.mean(np.concatenate(hits)))


def cross_dev_score(encoder: CrossEncoder, rows: DevRows) -> float:
    assert rows.labels is not None
    found = encoder.predict(list(zip(rows.texts[0], rows.texts[1], strict=True)))
    if rows.kind is ExampleFormat.SCORED:
        return spearman(found, rows.labels)
    return class_accuracy(found.argmax(1), rows.labels)
