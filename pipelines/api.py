"""The jobs as functions: one verb per job, its options as keyword arguments.

    from pipelines.api import embed, find_pairs, cluster

    vectors = embed("texts.parquet", model="demo", out="vectors")
    pairs = find_pairs(vectors.out, out="pairs", threshold=0.9)
    decided = cluster(pairs.out, out="clusters")

Each verb builds the spec of its job, runs it and returns its report. Options, defaults and outputs
are those of the command line (docs/reference.md); a verb whose output is up to date has nothing to
do. Jobs run on an embedded Ray unless `address` or RAY_ADDRESS names a cluster. A ValueError means
that the input or an option is wrong; errors with an `exit_code` are those of the command line.
Libraries load when a verb is called.
"""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from pipelines.cluster.spec import ClusterMethod, ClusterSpec
from pipelines.dedup.spec import DedupSpec
from pipelines.embed.spec import DistinctScope, EmbedSpec, IdSource
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.index.spec import IndexSpec
from pipelines.options import Spec, SpecOption, options_of
from pipelines.pairs.spec import JoinMethod, PairsSpec
from pipelines.prepare.spec import PrepareSpec
from pipelines.run.spec import RunSpec
from pipelines.search.spec import SearchSpec
from pipelines.train.spec import TrainSpec
from sbert_core.choices import (
    Aggregate,
    Distance,
    ExampleFormat,
    LongTexts,
    ObjectiveName,
    Pooling,
    Precision,
    TrainPrecision,
    VectorType,
)

if TYPE_CHECKING:
    from pipelines.artifacts.reader import Artifact
    from pipelines.cluster.job import ClusterReport
    from pipelines.dedup.job import DedupReport
    from pipelines.embed.report import EmbedReport
    from pipelines.evaluate.job import EvaluateReport
    from pipelines.index.job import IndexReport
    from pipelines.pairs.job import PairsReport
    from pipelines.prepare.job import PrepareReport
    from pipelines.run.job import RunReport
    from pipelines.search.index import Index
    from pipelines.search.job import SearchReport
    from pipelines.train.report import TrainReport

__all__ = [
    "Artifact",
    "Index",
    "build_index",
    "cluster",
    "deduplicate",
    "embed",
    "evaluate",
    "find_pairs",
    "prepare",
    "run",
    "search",
    "train",
]

Place: TypeAlias = str | os.PathLike[str]
Places: TypeAlias = Place | Sequence[Place]
SpecType = TypeVar("SpecType", bound=Spec)

_CLASSES = {"Artifact": "pipelines.artifacts.reader", "Index": "pipelines.search.index"}


def __getattr__(name: str) -> object:
    """Import a public class on first use."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_CLASSES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def embed(
    corpus: Place,
    *,
    model: Place,
    out: Place,
    text_column: str = "text",
    text: str | None = None,
    id_column: str | None = None,
    id: IdSource | str | None = None,
    carry: Sequence[str] = (),
    where: str | None = None,
    limit: int | None = None,
    precision: Precision | str = Precision.FLOAT32,
    dtype: VectorType | str = VectorType.FLOAT32,
    max_length: int | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    long: LongTexts | str = LongTexts.TRUNCATE,
    distinct: DistinctScope | str = DistinctScope.CORPUS,
    actors: int | None = None,
    gpus_per_actor: float | None = None,
    cpus_per_actor: int = 1,
    unit_rows: int | None = None,
    skip_corrupt: bool = False,
    address: str | None = None,
) -> "EmbedReport":
    """Turn a corpus of texts into vectors; only what is new or changed is embedded.

    >>> embed("texts.parquet", model="encoder", out="vectors").rows
    8
    >>> embed("texts.parquet", model="encoder", out="vectors").is_new
    False
    """
    spec = _make_spec(EmbedSpec, locals())
    from pipelines.embed import job
    from pipelines.embed.report import EmbedReport

    report = job.run(spec)
    assert isinstance(report, EmbedReport), "only a plan is an estimate"
    return report


def build_index(
    vectors: Place,
    *,
    out: Place,
    kind: str = "hnsw",
    shards: int | None = None,
    m: int = 16,
    ef_construction: int = 200,
    train_sample: int | None = None,
    recall_sample: int = 1000,
    recall_target: float | None = None,
    seed: int = 0,
    address: str | None = None,
) -> "IndexReport":
    """Build or update an index of vectors, and measure its recall.

    >>> index = build_index("vectors", out="index")
    >>> index.card.rows, index.card.recall["inside"]["10"].value
    (8, 1.0)
    """
    spec = _make_spec(IndexSpec, locals())
    from pipelines.index import job

    return job.run(spec)


def search(
    index: Place,
    text: str | None = None,
    *,
    queries: Place | None = None,
    text_column: str = "text",
    id_column: str | None = None,
    k: int = 10,
    model: Place | None = None,
    precision: Precision | str = Precision.FLOAT32,
    rerank: Place | None = None,
    filter: str | None = None,
    out: Place | None = None,
    address: str | None = None,
) -> "SearchReport":
    """Find the closest rows of an index to a text, or to each text of a file.

    For many single queries open the index once: `Index.open("index").search_text("...")`.

    >>> [hit.id for hit in search("index", "a river in winter", k=1).hits]
    ['river']
    """
    spec = _make_spec(SearchSpec, locals())
    from pipelines.search import job

    return job.run(spec)


def find_pairs(
    vectors: Place,
    *,
    out: Place,
    threshold: float | None = None,
    against: Place | None = None,
    method: JoinMethod | str = JoinMethod.AUTO,
    recall: float = 0.99,
    top_k: int | None = None,
    max_edges: int | None = None,
    rerank: Place | None = None,
    band: tuple[float, float] = (0.85, 0.95),
    seed: int = 0,
    address: str | None = None,
) -> "PairsReport":
    """Find all pairs of rows that are at least as similar as a threshold.

    >>> find_pairs("vectors", out="pairs", threshold=0.9999).pairs
    1
    """
    spec = _make_spec(PairsSpec, locals())
    from pipelines.pairs import job

    return job.run(spec)


def cluster(
    pairs: Place,
    *,
    out: Place,
    method: ClusterMethod | str = ClusterMethod.LEADERS,
    thresholds: Sequence[float] = (),
    keep: str = "",
    protect: Place | None = None,
    metadata: Place | None = None,
    vectors: Place | None = None,
    min_rerank: float | None = None,
    max_cluster_share: float = 0.01,
    topics: int | None = None,
    compare_fresh: bool = False,
    seed: int = 0,
) -> "ClusterReport":
    """Decide which rows to keep; every other row has a kept witness.

    >>> [decided] = cluster("pairs", out="clusters").summaries
    >>> decided.kept, decided.removed
    (7, 1)
    """
    spec = _make_spec(ClusterSpec, locals())
    from pipelines.cluster import job

    return job.run(spec)


def deduplicate(
    file: Place,
    *,
    out: Place,
    text_column: str = "text",
    id_column: str | None = None,
    threshold: float | str = "auto",
    keep: str = "",
    model: Place = "demo",
    address: str | None = None,
) -> "DedupReport":
    """Remove near-duplicates from one file: kept, removed with witnesses, report.

    >>> clean = deduplicate("texts.parquet", out="clean", model="encoder", threshold=0.9999)
    >>> clean.num_removed, clean.kept
    (1, 'clean/kept.parquet')
    """
    spec = _make_spec(DedupSpec, locals())
    from pipelines.dedup import job

    return job.run(spec)


def prepare(
    files: Places,
    *,
    out: Place,
    format: ExampleFormat | str,
    columns: Sequence[str] = (),
    exclude: Places = (),
    labels: Sequence[str] = (),
    skip_label: Sequence[str] = (),
    score_range: tuple[float, float] = (0.0, 1.0),
    dev_fraction: float = 0.0,
    shards: int | None = None,
    tokenizer: Place | None = None,
    seed: int = 0,
    address: str | None = None,
) -> "PrepareReport":
    """Turn labelled files into shards to train on, without repeats and leaks.

    >>> prepare("scored.parquet", out="shards", format="scored").train
    8
    """
    spec = _make_spec(PrepareSpec, locals())
    from pipelines.prepare import job

    return job.run(spec)


def train(
    shards: Place,
    *,
    base: Place,
    out: Place,
    objective: ObjectiveName | str | None = None,
    cross_encoder: bool = False,
    concat: str = "u,v,|u-v|",
    margin: float = 1.0,
    distance: Distance | str = Distance.EUCLIDEAN,
    matryoshka: Sequence[int] = (),
    pooling: Pooling | str | None = None,
    dense: int | None = None,
    max_length: int | None = None,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    cpus_per_worker: int | None = None,
    epochs: int = 1,
    batch_size: int = 16,
    accumulate: int = 1,
    lr: float = 2e-5,
    warmup: float = 0.1,
    weight_decay: float = 0.0,
    precision: TrainPrecision | str | None = None,
    seed: int = 0,
    seeds: int | None = None,
    eval: Place | None = None,
    checkpoint_steps: int = 500,
    address: str | None = None,
) -> "list[TrainReport]":
    """Fine-tune an encoder, or a cross-encoder, on shards; one report per seed.

    >>> [made] = train("shards", base="encoder", out="better", objective="cosine", batch_size=4)
    >>> made.rows, made.steps
    (8, 2)
    """
    spec = _make_spec(TrainSpec, locals())
    from pipelines.train import job

    return job.run(spec)


def evaluate(
    models: Places,
    *,
    sts: Places = (),
    sts_aggregate: Aggregate | str = Aggregate.ALL,
    nli: Places = (),
    triplets: Places = (),
    pairs: Places = (),
    transfer: Place | None = None,
    retrieval: Place | None = None,
    clusters: Places = (),
    facets: Places = (),
    baselines: Sequence[str] = (),
    precision: Precision | str = Precision.FLOAT32,
    out: Place | None = None,
    address: str | None = None,
) -> "EvaluateReport":
    """Score models on the benchmarks of the paper, side by side.

    >>> scores = evaluate("encoder", sts="scored.parquet").scores
    >>> [score.measure for score in scores["encoder"]][:2]
    ['spearman_cosine', 'pearson_cosine']
    """
    spec = _make_spec(EvaluateSpec, locals())
    from pipelines.evaluate import job

    return job.run(spec)


def run(
    job: Place,
    *,
    settings: Sequence[str] = (),
    plan: bool = False,
    start: str | None = None,
    address: str | None = None,
) -> "RunReport":
    """Run the stages of a job file; finished ones have nothing to do.

    >>> [(stage.name, stage.outcome) for stage in run("job.yaml").stages]
    [('embed', 'done'), ('pairs', 'done'), ('cluster', 'done')]
    """
    spec = _make_spec(RunSpec, locals())
    from pipelines.run.job import run as run_stages

    return run_stages(spec)


def _make_spec(spec_type: type[SpecType], arguments: Mapping[str, object]) -> SpecType:
    """The spec of a verb from its arguments, which carry the names of the fields."""
    values = {
        declared.name: _field_value(declared, arguments[declared.name])
        for declared in options_of(spec_type)
        if declared.name in arguments
    }
    return spec_type(**values)


def _field_value(declared: SpecOption, value: object) -> object:
    """An argument as the type of its field: one place for many, a path for a text, and back."""
    if value is None:
        variable = declared.info.envvar
        return None if variable is None else os.environ.get(variable)
    if declared.length is not None:
        items = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        return tuple(os.fspath(i) if isinstance(i, os.PathLike) else i for i in items)
    if declared.kind is Path:
        return Path(str(value))
    if declared.kind is str:
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    return value
