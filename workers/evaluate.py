"""One model -> its scores on all benchmarks of a run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sbert_core.encoder import Encoder
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.evaluation.baselines import TfIdf, WordAverage
from sbert_core.evaluation.correlation import Aggregate, aggregated, pearson, spearman
from sbert_core.evaluation.duplicates import duplicate_scores
from sbert_core.evaluation.facets import facet_scores
from sbert_core.evaluation.pair_classification import class_accuracy, pair_scores, triplet_accuracy
from sbert_core.evaluation.retrieval import RECALLS, retrieval_scores
from sbert_core.evaluation.similarity import SIMILARITIES, cosines
from sbert_core.evaluation.transfer import split_accuracy, ten_fold_accuracy
from sbert_core.training.examples import class_name
from sbert_core.training.losses import SoftmaxHead

QUERY_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Score:
    """One number. `is_main` marks the one a table shows for its data set."""

    task: str
    data: str
    measure: str
    value: float
    is_main: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A data set, read by the driver: its columns by role, and options of its task."""

    task: str
    data: str
    columns: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)


class VectorMaker(Protocol):
    """Anything that gives vectors for texts."""

    def encode(self, texts: Sequence[str]) -> np.ndarray: ...


class FolderOutput:
    """An encoder's vectors as its folder makes them, not forced to unit length."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self.encoder.encode(texts, normalize=False)

    def encode_search(self, queries: list[str], documents: list[str]) -> np.ndarray:
        """Queries behind the model's prompt for them, documents behind theirs."""
        asked = self.encoder.encode(queries, prompt=self.encoder.query_prompt)
        return np.vstack(
            [asked, self.encoder.encode(documents, prompt=self.encoder.document_prompt)]
        )


class PairScorer:
    """A cross-encoder: it scores pairs and has no vectors."""

    def __init__(self, encoder: CrossEncoder, place: str) -> None:
        if encoder.num_outputs > 1:
            raise ValueError(
                f"{place} gives {encoder.num_outputs} classes, not a score; evaluate a "
                "cross-encoder that has one output"
            )
        self.encoder = encoder

    def scores(self, benchmark: Benchmark) -> np.ndarray:
        pairs = zip(benchmark.columns["a"], benchmark.columns["b"], strict=True)
        return self.encoder.predict(list(pairs))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        raise ValueError("a cross-encoder has no vectors; evaluate it with --sts or --pairs alone")


def judged(kind: str, place: str, benchmarks: list[Benchmark]) -> list[Score]:
    """All scores of one model; `kind` says what stands at `place`."""
    maker = _maker(kind, place)
    head = Path(place) / "head"
    return [
        score
        for benchmark in benchmarks
        for score in TASKS[benchmark.task](benchmark, maker, head if kind == "model" else None)
    ]


def _maker(kind: str, place: str) -> VectorMaker:
    match kind:
        case "glove":
            return WordAverage.load(Path(place))
        case "tfidf":
            return TfIdf()
        case "mean" | "cls":
            return FolderOutput(Encoder.load(place, pooling=kind))
    config = Path(place) / "config.json"
    if config.is_file() and "ForSequenceClassification" in config.read_text(encoding="utf-8"):
        return PairScorer(CrossEncoder.load(place), place)
    return FolderOutput(Encoder.load(place))


def _pair_vectors(benchmark: Benchmark, maker: VectorMaker) -> tuple[np.ndarray, np.ndarray]:
    """Both sides in one call: tf-idf must see all texts, and repeats are encoded once."""
    a, b = benchmark.columns["a"], benchmark.columns["b"]
    vectors = maker.encode([*a, *b])
    return vectors[: len(a)], vectors[len(a) :]


def _sts(benchmark: Benchmark, maker: VectorMaker, head: Path | None) -> Iterator[Score]:
    score, subset = benchmark.columns["score"], benchmark.columns["subset"]
    how = Aggregate(benchmark.options["aggregate"])
    measures: tuple[tuple[str, Callable], ...] = (("spearman", spearman), ("pearson", pearson))
    if isinstance(maker, PairScorer):
        similarities = {"cosine": maker.scores(benchmark)}  # stands in the same row of the table
    else:
        a, b = _pair_vectors(benchmark, maker)
        similarities = {name: measured(a, b) for name, measured in SIMILARITIES.items()}
    for similarity, values in similarities.items():
        for name, measure in measures:
            number = aggregated(measure, values, score, subset, how)
            is_main = (similarity, name) == ("cosine", "spearman")
            yield Score("sts", benchmark.data, f"{name}_{similarity}", number, is_main)


def _nli(benchmark: Benchmark, maker: VectorMaker, head: Path | None) -> Iterator[Score]:
    if head is None:  # a baseline has no classifier
        return
    classifier, classes = SoftmaxHead.load(head)
    a, b = _pair_vectors(benchmark, maker)
    place = {name: number for number, name in enumerate(classes)}
    labels = [class_name(label) for label in benchmark.columns["label"]]
    if unknown := sorted(set(labels) - set(place)):
        raise ValueError(
            f"{benchmark.data} has label {unknown[0]!r}, the head knows: {', '.join(classes)}"
        )
    truth = np.array([place[label] for label in labels])
    value = class_accuracy(classifier.predicted(a, b), truth)
    yield Score("nli", benchmark.data, "accuracy", value, True)


def _triplets(benchmark: Benchmark, maker: VectorMaker, head: Path | None) -> Iterator[Score]:
    roles = [benchmark.columns[name] for name in ("anchor", "positive", "negative")]
    vectors = maker.encode([text for role in roles for text in role])
    anchor, positive, negative = np.split(vectors, 3)
    for name, measured in SIMILARITIES.items():
        value = triplet_accuracy(measured(anchor, positive), measured(anchor, negative))
        yield Score("triplets", benchmark.data, f"accuracy_{name}", value, name == "cosine")


def _pairs(benchmark: Benchmark, maker: VectorMaker, head: Path | None) -> Iterator[Score]:
    if isinstance(maker, PairScorer):
        similarity = maker.scores(benchmark)
    else:
        similarity = cosines(*_pair_vectors(benchmark, maker))
    found = pair_scores(similarity, benchmark.columns["label"])
    for name in ("average_precision", "f1", "accuracy", "f1_threshold", "accuracy_threshold"):
        is_main = name == "average_precision"
        yield Score("pairs", benchmark.data, name, float(getattr(found, name)), is_main)


def _transfer(benchmark: Benchmark, maker: VectorMaker, head: Path | None) -> Iterator[Score]:
    """A classifier over a text's vector; over |u-v| and u*v where a row has two texts."""
    columns = benchmark.columns
    if columns["b"] is None:
        vectors = maker.encode(columns["a"])
    else:
        u, v = _pair_vectors(benchmark, maker)
        vectors = np.hstack([np.abs(u - v), u * v])
    label, is_test = columns["label"], columns["is_test"]
    if is_test is None:
        value = ten_fold_accuracy(vectors, label)
    else:
        value = split_accuracy(
            vectors[~is_test], label[~is_test], vectors[is_test], label[is_test], seed=0
        )
    yield Score("transfer", benchmark.data, "accuracy", value, True)


def _retrieval(benchmark: Benchmark, maker: VectorMaker, head: Path | None) -> Iterator[Score]:
    columns = benchmark.columns
    num_queries = len(columns["queries"])
    if isinstance(maker, FolderOutput):
        vectors = maker.encode_search(columns["queries"], columns["documents"])
    else:
        vectors = maker.encode([*columns["queries"], *columns["documents"]])
    norms = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    unit = (vectors / norms).astype(np.float32)
    queries, documents = unit[:num_queries], unit[num_queries:]
    depth = min(max(RECALLS), len(documents))
    ranked: list[list[int]] = []
    for first in range(0, num_queries, QUERY_BLOCK):
        cos = queries[first : first + QUERY_BLOCK] @ documents.T
        ranked += np.argsort(-cos, axis=1, kind="stable")[:, :depth].tolist()
    for name, value in retrieval_scores(ranked, columns["relevant"]).items():
        yield Score("retrieval", benchmark.data, name, value, name == "ndcg@10")


def _clusters(benchmark: Benchmark, maker: VectorMaker, head: Path | None) -> Iterator[Score]:
    vectors = maker.encode(benchmark.columns["text"])
    best, curve, groups = duplicate_scores(vectors, benchmark.columns["cluster"])
    yield Score("clusters", benchmark.data, "pair_f1", best.f1, True)
    for name in ("threshold", "precision", "recall"):
        yield Score("clusters", benchmark.data, f"best_{name}", getattr(best, name))
    yield Score("clusters", benchmark.data, "rand", groups.rand)
    for scores in curve:
        if scores.threshold >= 0.5 and round(scores.threshold * 100) % 5 == 0:
            yield Score("clusters", benchmark.data, f"f1@{scores.threshold:.2f}", scores.f1)


def _facets(benchmark: Benchmark, maker: VectorMaker, head: Path | None) -> Iterator[Score]:
    a, b = _pair_vectors(benchmark, maker)
    found = facet_scores(cosines(a, b), benchmark.columns["score"], benchmark.columns["topic"])
    for name, value in found.items():
        yield Score("facets", benchmark.data, name, value, name == "spearman_10_fold")


TASKS: dict[str, Callable[[Benchmark, VectorMaker, Path | None], Iterator[Score]]] = {
    "sts": _sts,
    "nli": _nli,
    "triplets": _triplets,
    "pairs": _pairs,
    "transfer": _transfer,
    "retrieval": _retrieval,
    "clusters": _clusters,
    "facets": _facets,
}
