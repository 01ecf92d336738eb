"""Options of `sbert evaluate`, checked when they are given."""

from pathlib import Path

from pipelines.options import (
    ADDRESS,
    PRECISION,
    RAY_ADDRESS,
    PathKind,
    Spec,
    argument,
    option,
    refuse_uri,
    spec_class,
)
from sbert_core.choices import Aggregate, Precision

TASKS = ("sts", "nli", "triplets", "pairs", "transfer", "retrieval", "clusters", "facets")
BASELINES = ("glove", "tfidf", "mean", "cls")


@spec_class
class EvaluateSpec(Spec):
    """Score models on the benchmarks of the paper, side by side."""

    models: tuple[str, ...] = argument(
        "Encoders or cross-encoders: folders, hub ids or 'demo'.", path=PathKind.MODEL
    )
    sts: tuple[str, ...] = option(
        "Scored pairs: sentence1, sentence2, score.", default=(), path=PathKind.INPUT
    )
    sts_aggregate: Aggregate = option(
        "Subsets of one file scored together (all), averaged (mean), or weighted by their pairs "
        "(wmean).",
        default=Aggregate.ALL,
    )
    nli: tuple[str, ...] = option(
        "Pairs with a class, for models with a softmax head.", default=(), path=PathKind.INPUT
    )
    triplets: tuple[str, ...] = option(
        "Triplets: anchor, positive, negative.", default=(), path=PathKind.INPUT
    )
    pairs: tuple[str, ...] = option(
        "Two texts and label 1 (same) or 0.", default=(), path=PathKind.INPUT
    )
    transfer: str | None = option(
        "Folder of the SentEval tasks: mr.parquet, trec_train.parquet...",
        default=None,
        path=PathKind.INPUT,
    )
    retrieval: str | None = option(
        "Folder with NAME_docs, NAME_queries, NAME_qrels.", default=None, path=PathKind.INPUT
    )
    clusters: tuple[str, ...] = option(
        "Clusters: id, cluster, text.", default=(), path=PathKind.INPUT
    )
    facets: tuple[str, ...] = option(
        "Argument pairs with score and topic.", default=(), path=PathKind.INPUT
    )
    baselines: tuple[str, ...] = option(
        "Another column of scores: glove=FILE, tfidf, mean=MODEL or cls=MODEL.",
        default=(),
        path=PathKind.NAMED_MODEL,
    )
    precision: Precision = option(PRECISION, default=Precision.FLOAT32)
    out: Path | None = option(
        "Folder for scores.json and scores.md.", default=None, path=PathKind.OUTPUT
    )
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        if self.out is not None:
            refuse_uri(self.out)
        if not any(getattr(self, task) for task in TASKS):
            raise ValueError(f"nothing to evaluate on; give one of --{', --'.join(TASKS)}")
        for baseline in self.baselines:
            kind, _, place = baseline.partition("=")
            if kind not in BASELINES or (kind != "tfidf") != bool(place):
                raise ValueError(
                    f"baseline {baseline!r} is unknown; give glove=FILE, tfidf, mean=MODEL or "
                    "cls=MODEL"
                )
