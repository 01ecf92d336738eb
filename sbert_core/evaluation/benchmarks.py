"""Data sets in memory, one class per task, and scores.

Texts are lists, one entry per row; what is compared with vectors or similarities is an array.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np

from sbert_core.choices import Aggregate
from sbert_core.json_record import Number


class Task(StrEnum):
    """Kinds of benchmarks. The members are written to `scores.json` and to the score table."""

    STS = "sts"
    NLI = "nli"
    TRIPLETS = "triplets"
    PAIRS = "pairs"
    TRANSFER = "transfer"
    RETRIEVAL = "retrieval"
    CLUSTERS = "clusters"
    FACETS = "facets"


@dataclass(frozen=True, slots=True)
class Score:
    """One number. `is_main` marks the one a table shows for its data set.

    The fields are keys of `scores.json`.
    """

    task: str
    data: str
    measure: str
    value: Number  # a threshold above all similarities may be infinite
    is_main: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A data set. `data` is its name in tables."""

    task: ClassVar[Task]
    data: str

    def score(self, measure: str, value: float, *, is_main: bool = False) -> Score:
        """A score on this data set."""
        return Score(self.task.value, self.data, measure, value, is_main)


@dataclass(frozen=True, slots=True, kw_only=True)
class StsBenchmark(Benchmark):
    """Pairs with a similarity by people, in subsets or not."""

    task = Task.STS
    a: list[str]
    b: list[str]
    similarity: np.ndarray
    subset: np.ndarray | None
    aggregate: Aggregate


@dataclass(frozen=True, slots=True, kw_only=True)
class NliBenchmark(Benchmark):
    """Pairs with a class, spelled as in the file."""

    task = Task.NLI
    a: list[str]
    b: list[str]
    label: list[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TripletBenchmark(Benchmark):
    """Anchors with a text that is closer and one that is farther away."""

    task = Task.TRIPLETS
    anchor: list[str]
    positive: list[str]
    negative: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBenchmark(Benchmark):
    """Pairs that match or not."""

    task = Task.PAIRS
    a: list[str]
    b: list[str]
    is_match: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferBenchmark(Benchmark):
    """Texts, or pairs of texts, with a class. Without `is_test`, ten folds."""

    task = Task.TRANSFER
    a: list[str]
    b: list[str] | None
    label: np.ndarray
    is_test: np.ndarray | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalBenchmark(Benchmark):
    """Queries and documents. `relevant`: gains of each query's documents, by row.

    A negative row stands for a relevant document that is not among `documents`.
    """

    task = Task.RETRIEVAL
    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBenchmark(Benchmark):
    """Texts with the cluster each belongs to."""

    task = Task.CLUSTERS
    text: list[str]
    cluster: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetBenchmark(Benchmark):
    """Pairs of arguments with a similarity by people and a topic."""

    task = Task.FACETS
    a: list[str]
    b: list[str]
    similarity: np.ndarray
    topic: np.ndarray
