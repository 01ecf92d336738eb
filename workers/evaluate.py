"""One model -> its scores on all benchmarks of a run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np

from sbert_core.arrays import Float32Array, FloatArray
from sbert_core.choices import Precision
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.result import require_vectors
from sbert_core.evaluation.baselines import TfIdf, WordAverage
from sbert_core.evaluation.benchmarks import (
    Benchmark,
    ClusterBenchmark,
    FacetBenchmark,
    NliBenchmark,
    PairBenchmark,
    RetrievalBenchmark,
    Score,
    StsBenchmark,
    TransferBenchmark,
    TripletBenchmark,
)
from sbert_core.evaluation.correlation import Correlation, aggregate_subsets, pearson, spearman
from sbert_core.evaluation.duplicates import duplicate_scores
from sbert_core.evaluation.facets import facet_scores
from sbert_core.evaluation.pair_classification import class_accuracy, pair_scores, triplet_accuracy
from sbert_core.evaluation.retrieval import RECALLS, retrieval_scores
from sbert_core.evaluation.similarity import SIMILARITIES, cosines
from sbert_core.evaluation.transfer import split_accuracy, ten_fold_accuracy
from sbert_core.training.examples import class_name
from sbert_core.training.losses import SoftmaxHead

QUERY_BLOCK = 256


class ModelKind(StrEnum):
    """What is scored: a trained model, or one of the baselines of the paper."""

    MODEL = "model"
    GLOVE = "glove"
    TFIDF = "tfidf"
    MEAN = "mean"
    CLS = "cls"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model to score. `place`: its folder, or a file of word vectors; "" for tf-idf."""

    kind: ModelKind
    place: str
    precision: Precision = Precision.FLOAT32

    @property
    def head_folder(self) -> Path | None:
        """Where a trained model keeps its softmax head; baselines have none."""
        return Path(self.place) / "head" if self.kind is ModelKind.MODEL else None


class Embedder(Protocol):
    """Turns texts into vectors."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """One vector per text."""
        ...


class RawEncoder:
    """An encoder's vectors as its last module makes them, not normalised.

    ValueError for a text that has none: a score without it would be another one, or not a number.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def encode(self, texts: Sequence[str]) -> Float32Array:
        """One vector per text."""
        return require_vectors(self.encoder.encode_report(texts, normalize=False), texts)

    def encode_search(self, queries: list[str], documents: list[str]) -> Float32Array:
        """Queries, then documents, each with the model's prompt for them; unit vectors."""
        prompts = (self.encoder.query_prompt, self.encoder.document_prompt)
        return np.vstack(
            [
                require_vectors(self.encoder.encode_report(texts, prompt=prompt), texts)
                for texts, prompt in zip((queries, documents), prompts, strict=True)
            ]
        )


class PairScorer:
    """A cross-encoder, which scores pairs and has no vectors."""

    def __init__(self, encoder: CrossEncoder, place: str) -> None:
        if encoder.num_outputs > 1:
            raise ValueError(
                f"{place} gives {encoder.num_outputs} classes, not a score; evaluate a "
                "cross-encoder that has one output"
            )
        self.encoder = encoder

    def score(self, a: list[str], b: list[str]) -> Float32Array:
        """One similarity per pair."""
        return self.encoder.predict(list(zip(a, b, strict=True)))

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Raises ValueError: the task needs vectors."""
        raise ValueError("a cross-encoder has no vectors; evaluate it with --sts or --pairs alone")


def score_model(source: ModelSource, benchmarks: Sequence[Benchmark]) -> list[Score]:
    """All scores of one model, in the order of the benchmarks."""
    embedder = load_embedder(source)
    return [
        score
        for benchmark in benchmarks
        for score in score_benchmark(benchmark, embedder, source.head_folder)
    ]


def load_embedder(source: ModelSource) -> Embedder:
    """The model or baseline, loaded."""
    match source.kind:
        case ModelKind.GLOVE:
            return WordAverage.load(Path(source.place))
        case ModelKind.TFIDF:
            return TfIdf()
        case ModelKind.MEAN | ModelKind.CLS:
            return RawEncoder(
                Encoder.load(source.place, pooling=source.kind.value, precision=source.precision)
            )
    config = Path(source.place) / "config.json"
    if config.is_file() and "ForSequenceClassification" in config.read_text(encoding="utf-8"):
        if source.precision not in (Precision.AUTO, Precision.FLOAT32):
            raise ValueError(
                f"{source.place} is a cross-encoder, which computes in float32, not in "
                f"{source.precision}; evaluate it without --precision"
            )
        return PairScorer(CrossEncoder.load(source.place), source.place)
    return RawEncoder(Encoder.load(source.place, precision=source.precision))


def score_benchmark(
    benchmark: Benchmark, embedder: Embedder, head_folder: Path | None
) -> Iterator[Score]:
    """Scores of a model on one benchmark; none where the task needs a head and it has none."""
    match benchmark:
        case StsBenchmark():
            return _score_sts(benchmark, embedder)
        case NliBenchmark():
            return _score_nli(benchmark, embedder, head_folder)
        case TripletBenchmark():
            return _score_triplets(benchmark, embedder)
        case PairBenchmark():
            return _score_pairs(benchmark, embedder)
        case TransferBenchmark():
            return _score_transfer(benchmark, embedder)
        case RetrievalBenchmark():
            return _score_retrieval(benchmark, embedder)
        case ClusterBenchmark():
            return _score_clusters(benchmark, embedder)
        case FacetBenchmark():
            return _score_facets(benchmark, embedder)
    raise TypeError(f"{type(benchmark).__name__} has no scorer")


def _encode_pairs(a: list[str], b: list[str], embedder: Embedder) -> tuple[FloatArray, FloatArray]:
    """Both sides in one call: tf-idf must see all texts, and repeats are encoded once."""
    vectors = embedder.encode([*a, *b])
    return vectors[: len(a)], vectors[len(a) :]


def _score_sts(benchmark: StsBenchmark, embedder: Embedder) -> Iterator[Score]:
    measures: tuple[tuple[str, Correlation], ...] = (("spearman", spearman), ("pearson", pearson))
    if isinstance(embedder, PairScorer):
        # Under the same name, so that it stands in the same row of the table.
        similarities = {"cosine": embedder.score(benchmark.a, benchmark.b)}
    else:
        a, b = _encode_pairs(benchmark.a, benchmark.b, embedder)
        similarities = {name: measure(a, b) for name, measure in SIMILARITIES.items()}
    for similarity, values in similarities.items():
        for name, correlation in measures:
            value = aggregate_subsets(
                correlation, values, benchmark.similarity, benchmark.subset, benchmark.aggregate
            )
            is_main = (similarity, name) == ("cosine", "spearman")
            yield benchmark.score(f"{name}_{similarity}", value, is_main=is_main)


def _score_nli(
    benchmark: NliBenchmark, embedder: Embedder, head_folder: Path | None
) -> Iterator[Score]:
    if head_folder is None:
        return
    classifier, classes = SoftmaxHead.load(head_folder)
    a, b = _encode_pairs(benchmark.a, benchmark.b, embedder)
    number_of = {name: number for number, name in enumerate(classes)}
    labels = [class_name(label) for label in benchmark.label]
    if unknown := sorted(set(labels) - set(number_of)):
        raise ValueError(
            f"{benchmark.data} has label {unknown[0]!r}, the head knows: {', '.join(classes)}"
        )
    truth = np.array([number_of[label] for label in labels])
    value = class_accuracy(classifier.predict(a, b), truth)
    yield benchmark.score("accuracy", value, is_main=True)


def _score_triplets(benchmark: TripletBenchmark, embedder: Embedder) -> Iterator[Score]:
    vectors = embedder.encode([*benchmark.anchor, *benchmark.positive, *benchmark.negative])
    anchor, positive, negative = np.split(vectors, 3)
    for name, similarity in SIMILARITIES.items():
        value = triplet_accuracy(similarity(anchor, positive), similarity(anchor, negative))
        yield benchmark.score(f"accuracy_{name}", value, is_main=name == "cosine")


def _score_pairs(benchmark: PairBenchmark, embedder: Embedder) -> Iterator[Score]:
    if isinstance(embedder, PairScorer):
        similarity = embedder.score(benchmark.a, benchmark.b)
    else:
        similarity = cosines(*_encode_pairs(benchmark.a, benchmark.b, embedder))
    found = pair_scores(similarity, benchmark.is_match)
    yield benchmark.score("average_precision", float(found.average_precision), is_main=True)
    yield benchmark.score("f1", float(found.f1))
    yield benchmark.score("accuracy", float(found.accuracy))
    yield benchmark.score("f1_threshold", float(found.f1_threshold))
    yield benchmark.score("accuracy_threshold", float(found.accuracy_threshold))


def _score_transfer(benchmark: TransferBenchmark, embedder: Embedder) -> Iterator[Score]:
    """A classifier over a text's vector; over |u-v| and u*v where a row has two texts."""
    if benchmark.b is None:
        vectors = embedder.encode(benchmark.a)
    else:
        u, v = _encode_pairs(benchmark.a, benchmark.b, embedder)
        vectors = np.hstack([np.abs(u - v), u * v])
    label, is_test = benchmark.label, benchmark.is_test
    if is_test is None:
        value = ten_fold_accuracy(vectors, label)
    else:
        value = split_accuracy(
            vectors[~is_test], label[~is_test], vectors[is_test], label[is_test], seed=0
        )
    yield benchmark.score("accuracy", value, is_main=True)


def _score_retrieval(benchmark: RetrievalBenchmark, embedder: Embedder) -> Iterator[Score]:
    if isinstance(embedder, RawEncoder):
        vectors: FloatArray = embedder.encode_search(benchmark.queries, benchmark.documents)
    else:
        vectors = embedder.encode([*benchmark.queries, *benchmark.documents])
    norms = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    unit = (vectors / norms).astype(np.float32)
    num_queries = len(benchmark.queries)
    queries, documents = unit[:num_queries], unit[num_queries:]
    depth = min(max(RECALLS), len(documents))
    ranked: list[list[int]] = []
    for first in range(0, num_queries, QUERY_BLOCK):
        cos = queries[first : first + QUERY_BLOCK] @ documents.T
        ranked += np.argsort(-cos, axis=1, kind="stable")[:, :depth].tolist()
    for name, value in retrieval_scores(ranked, benchmark.relevant).items():
        yield benchmark.score(name, value, is_main=name == "ndcg@10")


def _score_clusters(benchmark: ClusterBenchmark, embedder: Embedder) -> Iterator[Score]:
    found = duplicate_scores(embedder.encode(benchmark.text), benchmark.cluster)
    yield benchmark.score("pair_f1", found.best.f1, is_main=True)
    yield benchmark.score("best_threshold", found.best.threshold)
    yield benchmark.score("best_precision", found.best.precision)
    yield benchmark.score("best_recall", found.best.recall)
    yield benchmark.score("rand", found.groups.rand)
    for scores in found.curve:
        if scores.threshold >= 0.5 and round(scores.threshold * 100) % 5 == 0:
            yield benchmark.score(f"f1@{scores.threshold:.2f}", scores.f1)


def _score_facets(benchmark: FacetBenchmark, embedder: Embedder) -> Iterator[Score]:
    a, b = _encode_pairs(benchmark.a, benchmark.b, embedder)
    found = facet_scores(cosines(a, b), benchmark.similarity, benchmark.topic)
    for name, value in found.items():
        yield benchmark.score(name, value, is_main=name == "spearman_10_fold")
