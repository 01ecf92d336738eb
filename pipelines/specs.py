"""Frozen description of each job, checked when it is made."""

import re
from dataclasses import dataclass, field, fields
from pathlib import Path

from sbert_core.corpus.columns import FIELD, carried_columns

MAX_UNIT_ROWS = 65_536


def _refuse_uri(out: Path) -> None:
    if re.match(r"[a-z0-9]+:/", str(out)):  # a path has lost one of the two slashes
        raise ValueError(f"out {out} is no folder; give a folder")


def _check_positive(spec: object, *names: str) -> None:
    for name in names:
        value = getattr(spec, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; give a whole number from 1 up")


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoSpec:
    """What `sbert demo` does. docstrings: None is what the size of the demo asks for."""

    out: Path
    docstrings: int | None = None
    small: bool = False
    address: str | None = None

    def __post_init__(self) -> None:
        if self.docstrings is not None and self.docstrings < 2:
            raise ValueError(f"docstrings is {self.docstrings}; a pair needs at least 2")
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"out is {self.out}, a file; give a folder, new or existing")


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareSpec:
    """What `sbert prepare` does. Fields carry the names of the options."""

    files: tuple[str, ...]
    out: str
    format: str
    columns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    skip_label: tuple[str, ...] = ()
    score_range: tuple[float, float] = (0.0, 1.0)
    dev_fraction: float = 0.0
    shards: int | None = None
    tokenizer: str | None = None
    seed: int = 0
    address: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.dev_fraction < 1:
            raise ValueError(f"dev_fraction is {self.dev_fraction}; give 0 up to below 1")
        if self.format != "pairs" and (self.labels or self.skip_label):
            raise ValueError(f"--labels and --skip-label are for pairs; {self.format} has none")
        low, high = self.score_range
        if not low < high:
            raise ValueError(f"score_range is {low:g},{high:g}; give LOW,HIGH with LOW below HIGH")
        _check_positive(self, "shards")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSpec:
    """What `sbert train` does. Fields carry the names of the options."""

    shards: str
    base: str
    out: Path
    objective: str | None = None
    cross_encoder: bool = False
    concat: str = "u,v,|u-v|"
    margin: float = 1.0
    distance: str = "euclidean"
    matryoshka: tuple[int, ...] = ()
    pooling: str | None = None
    dense: int | None = None
    max_length: int | None = None
    workers: int | None = None
    gpus_per_worker: float | None = None
    cpus_per_worker: int | None = None
    epochs: int = 1
    batch_size: int = 16
    accumulate: int = 1
    lr: float = 2e-5
    warmup: float = 0.1
    weight_decay: float = 0.0
    precision: str | None = None
    seed: int = 0
    seeds: int | None = None
    eval: str | None = None
    checkpoint_steps: int = 500
    address: str | None = None

    def __post_init__(self) -> None:
        if (self.objective is None) == (not self.cross_encoder):
            raise ValueError("give --objective for an encoder, or --cross-encoder, one of both")
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup is {self.warmup}; give a share of the steps, 0 to 1")
        for name in ("lr", "margin"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number above 0")
        _check_positive(
            self, "dense", "max_length", "workers", "cpus_per_worker", "epochs", "batch_size",
            "accumulate", "seeds", "checkpoint_steps",
        )  # fmt: skip
        if any(dim < 1 for dim in self.matryoshka):
            raise ValueError(f"matryoshka is {self.matryoshka}; give dimensions from 1 up")
        _refuse_uri(self.out)
        if self.cross_encoder:
            plain = {f.name: f.default for f in fields(self)}
            for name in ("pooling", "dense", "matryoshka", "concat", "margin", "distance"):
                if getattr(self, name) != plain[name]:
                    raise ValueError(f"{name} is for encoders; a --cross-encoder has none")


@dataclass(frozen=True, kw_only=True, slots=True)
class MineSpec:
    """What `sbert mine` does. Fields carry the names of the options."""

    shards: str
    model: str
    out: str
    negatives: int = 1
    margin: float = 0.05
    ceiling: float = 0.9
    address: str | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "negatives")
        if not 0 <= self.margin < 2:
            raise ValueError(f"margin is {self.margin}; give a difference of cosines, 0 to 2")
        if not -1 < self.ceiling <= 1:
            raise ValueError(f"ceiling is {self.ceiling}; give a cosine above -1, at most 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateSpec:
    """What `sbert evaluate` does. Fields carry the names of the options."""

    models: tuple[str, ...]
    sts: tuple[str, ...] = ()
    sts_aggregate: str = "all"
    nli: tuple[str, ...] = ()
    triplets: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    transfer: str | None = None
    retrieval: str | None = None
    clusters: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    out: Path | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.out is not None:
            _refuse_uri(self.out)
        tasks = ("sts", "nli", "triplets", "pairs", "transfer", "retrieval", "clusters", "facets")
        if not any(getattr(self, task) for task in tasks):
            raise ValueError(f"nothing to evaluate on; give one of --{', --'.join(tasks)}")
        for baseline in self.baselines:
            kind, _, place = baseline.partition("=")
            if kind not in ("glove", "tfidf", "mean", "cls") or (kind != "tfidf") != bool(place):
                raise ValueError(
                    f"baseline {baseline!r} is unknown; give glove=FILE, tfidf, mean=MODEL or "
                    "cls=MODEL"
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedSpec:
    """What `sbert embed` does. Fields carry the names of the options."""

    corpus: str
    model: str
    out: str
    text_column: str = "text"
    text: str | None = None
    id_column: str | None = None
    id: str | None = None
    carry: tuple[str, ...] = ()
    where: str | None = None
    limit: int | None = None
    dtype: str = "float32"
    max_length: int | None = None
    prompt: str | None = None
    truncate_dim: int | None = None
    long: str = "truncate"
    distinct: str = "corpus"
    actors: int | None = None
    gpus_per_actor: float | None = None
    cpus_per_actor: int = 1
    unit_rows: int | None = None
    skip_corrupt: bool = False
    plan: bool = False
    address: str | None = None

    def __post_init__(self) -> None:
        if self.id not in (None, "content"):
            raise ValueError(f"id is {self.id!r}; the only such id is 'content'")
        if self.id is not None and self.id_column is not None:
            raise ValueError("give --id-column or --id content, not both")
        if self.id is not None and self.distinct == "unit":
            raise ValueError(
                "--id content numbers repeats of a text, so it needs --distinct corpus"
            )
        _check_positive(
            self, "limit", "actors", "cpus_per_actor", "unit_rows", "max_length", "truncate_dim"
        )
        if self.unit_rows is not None and self.unit_rows > MAX_UNIT_ROWS:
            raise ValueError(f"unit_rows is {self.unit_rows}; at most {MAX_UNIT_ROWS}")
        if self.gpus_per_actor is not None and self.gpus_per_actor < 0:
            raise ValueError(f"gpus_per_actor is {self.gpus_per_actor}; give 0 or more")
        if self.text is not None and not FIELD.search(self.text):
            raise ValueError(f"text {self.text!r} names no column; write one as {{column}}")
        if self.text is None and not FIELD.fullmatch(self.template):
            raise ValueError(
                f"text_column {self.text_column!r} is no name of a column without braces; rename it"
            )
        carried_columns(self.carry)

    @property
    def carried(self) -> dict[str, str]:
        """The column of the corpus behind each published name."""
        return carried_columns(self.carry)

    @property
    def template(self) -> str:
        """The text of a row, its columns in braces."""
        return self.text if self.text is not None else f"{{{self.text_column}}}"


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexSpec:
    """What `sbert index` does. Fields carry the names of the options; shards None: by size."""

    vectors: str
    out: str
    kind: str = "hnsw"
    shards: int | None = None
    m: int = 16
    ef_construction: int = 200
    train_sample: int | None = None
    recall_sample: int = 1000
    recall_target: float | None = None
    seed: int = 0
    address: str | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "shards", "ef_construction", "train_sample", "recall_sample")
        if self.m < 2:
            raise ValueError(f"m is {self.m}; a graph needs 2 or more links a node")
        if self.recall_target is not None and not 0 < self.recall_target < 1:
            raise ValueError(f"recall_target is {self.recall_target}; give a share, as 0.99")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSpec:
    """What `sbert search` does. Fields carry the names of the options."""

    index: str
    text: str | None = None
    queries: str | None = None
    text_column: str = "text"
    id_column: str | None = None
    k: int = 10
    model: str | None = None
    rerank: str | None = None
    filter: str | None = None
    out: str | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "k")
        if (self.text is None) == (self.queries is None):
            raise ValueError("give one query text, or --queries FILE, one of both")
        if self.text is not None and not self.text.strip():
            raise ValueError("the query is empty; give some text to search for")
        if self.queries is not None and self.out is None:
            raise ValueError("--queries writes a Parquet file; name it with --out")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportSpec:
    """What `sbert export` writes. `name` is the table or collection."""

    vectors: str
    to: str
    out: str
    name: str = "vectors"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w{0,62}", self.name):
            raise ValueError(f"name {self.name!r} is no plain name; use letters, digits and _")


@dataclass(frozen=True, kw_only=True, slots=True)
class PathSpec:
    """What `sbert path` prints the folder of."""

    artifact: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsSpec:
    """What `sbert pairs` does. max_edges None: as many as there are."""

    vectors: str
    out: str
    threshold: float | None = None
    against: str | None = None
    method: str = "auto"
    recall: float = 0.99
    top_k: int | None = None
    max_edges: int | None = None
    rerank: str | None = None
    band: tuple[float, float] = (0.85, 0.95)
    seed: int = 0
    address: str | None = None

    def __post_init__(self) -> None:
        _check_positive(self, "max_edges", "top_k")
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise ValueError(f"threshold is {self.threshold:g}; a cosine lies between -1 and 1")
        if self.method not in ("auto", "exact", "ivf"):
            raise ValueError(f"method {self.method!r} is unknown; give auto, exact or ivf")
        if not 0 < self.recall < 1:
            raise ValueError(f"recall is {self.recall:g}; give a share, as 0.99")
        if self.top_k is not None and self.method == "ivf":
            raise ValueError("--top-k is exact; leave --method ivf out")
        if self.top_k is not None and self.rerank is not None:
            raise ValueError("--rerank is for pairs above a threshold; leave --top-k out")
        low, high = self.band
        if not -1 <= low <= high <= 1:
            raise ValueError(f"band is {low:g}:{high:g}; give LOW:HIGH, cosines with LOW <= HIGH")

    @property
    def least_cos(self) -> float:
        """Without a word on it 0.9; nearest rows are shown however far they are."""
        if self.threshold is not None:
            return self.threshold
        return 0.9 if self.top_k is None else -1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ThresholdSpec:
    """What `sbert threshold` does. source: vectors or pairs."""

    source: str
    labelled: str | None = None
    samples: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 0:
            raise ValueError(f"samples is {self.samples}; give 0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSpec:
    """What `sbert cluster` does. thresholds: none is that of the pairs. vectors: if they moved."""

    pairs: str
    out: str
    method: str = "leaders"
    thresholds: tuple[float, ...] = ()
    keep: str = ""
    protect: str | None = None
    metadata: str | None = None
    vectors: str | None = None
    min_rerank: float | None = None
    max_cluster_share: float = 0.01
    topics: int | None = None
    compare_fresh: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        _check_positive(self, "topics")
        if self.method not in ("leaders", "components"):
            raise ValueError(f"method {self.method!r} is unknown; give leaders or components")
        for threshold in self.thresholds:
            if not -1 <= threshold <= 1:
                raise ValueError(f"threshold is {threshold:g}; a cosine lies between -1 and 1")
        if not 0 < self.max_cluster_share <= 1:
            raise ValueError(
                f"max_cluster_share is {self.max_cluster_share:g}; give a share of rows, as 0.01"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplySpec:
    """What `sbert apply` does. threshold: which of several."""

    clusters: str
    corpus: str
    out: str
    threshold: float | None = None
    address: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportSpec:
    """What `sbert report` does. sources: the folder of a run, or artifacts."""

    sources: tuple[str, ...]
    out: str
    title: str | None = None
    sample: int = 4000
    clusters: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        _check_positive(self, "sample", "clusters")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """What `sbert run` does. settings: stage.option=value; start: the first stage to run."""

    job: Path
    settings: tuple[str, ...] = ()
    plan: bool = False
    start: str | None = None
    address: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DedupSpec:
    """What `sbert dedup` does. threshold: a cosine or auto."""

    file: str
    out: Path
    text_column: str = "text"
    id_column: str | None = None
    threshold: str = "auto"
    keep: str = ""
    model: str = "demo"
    address: str | None = None

    def __post_init__(self) -> None:
        _refuse_uri(self.out)
        if self.threshold != "auto":
            try:
                value = float(self.threshold)
            except ValueError:
                raise ValueError(f"threshold {self.threshold!r}; give a cosine or auto") from None
            if not -1 <= value <= 1:
                raise ValueError(f"threshold is {value:g}; a cosine lies between -1 and 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmitSpec:
    """What `sbert submit` does. words: more options of `sbert run`.

    env: NAME=VALUE, or NAME for its value here; kept out of what is printed of a spec.
    """

    job: Path
    address: str
    settings: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    env: tuple[str, ...] = field(default=(), repr=False)
    job_id: str | None = None
    wait: bool = True

    def __post_init__(self) -> None:
        if not re.match(r"https?://[^/]", self.address):
            raise ValueError(
                f"address {self.address!r} is no URL of a dashboard; give one as http://head:8265"
            )
        for word in self.env:
            if not re.fullmatch(r"[A-Za-z_]\w*", name := word.partition("=")[0]):
                raise ValueError(f"--env {name}: no name of a variable; give NAME=VALUE or NAME")
        if self.job_id is not None and not re.fullmatch(r"[\w.-]{1,128}", self.job_id):
            raise ValueError(f"job_id {self.job_id!r}; use letters, digits, '_', '.' and '-'")


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorSpec:
    """What `sbert doctor` looks at. storage: places that all nodes should share."""

    storage: tuple[str, ...] = ()
    gpu: bool = False
    address: str | None = None
