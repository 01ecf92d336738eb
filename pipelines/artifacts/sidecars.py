"""JSON files that jobs write beside their data, and that others read: names and types.

    card.json       index      what an index holds, its recall and its speed
    summary.json    clusters   rows kept and removed at each threshold, the largest clusters
    topics.json     clusters   rows and keywords of each topic
    _run.json       any        times, memory and speed of the run that published the artifact
    training.json   encoder    losses and scores of a training
    scores.json     scores     every score of every model
    run.json        a run      stages, gates and cost of `sbert run`

Fields stand in the order of the keys. Readers ignore keys that a type lacks; fields with a default
are missing in files of some jobs or of earlier versions.
"""

import json
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from pipelines.artifacts.kinds import RecallAtK, SearchEffort
from sbert_core.json_record import Count, Number, decode, encode, optional
from sbert_core.storage import Storage

CARD = "card.json"
SUMMARY = "summary.json"
TOPICS = "topics.json"
TRAINING = "training.json"
SCORES = "scores.json"
RUN_RECORD = "run.json"

Record = TypeVar("Record")
JsonBytes: TypeAlias = bytes  # inside IndexCard `bytes` is a field


def read_sidecar(storage: Storage, name: str, kind: type[Record]) -> Record:
    """The content of a JSON file as `kind`; ValueError names the file and what is wrong with it."""
    return decode(kind, read_json(storage, name), f"{storage.uri}/{name}")


def read_json(storage: Storage, name: str) -> object:
    """The value of a JSON file; ValueError names a file that is not JSON."""
    try:
        value: object = json.loads(storage.read(name))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{storage.uri}/{name} is no JSON ({error}); make it again") from None
    return value


def sidecar_json(record: object) -> JsonBytes:
    """The bytes of a sidecar: one key a line, in the order of the fields."""
    return (json.dumps(encode(record), indent=1) + "\n").encode()


# -- index -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexParameters:
    """How the index was built."""

    m: Count
    ef_construction: Count
    factory: str | None
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTimes:
    """Milliseconds of one query for ten hits on one thread. how: they were extrapolated."""

    p50: Number
    p99: Number
    rows: Count
    how: str | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCard:
    """card.json: what an index holds, what it misses and how fast it is.

    recall: by sample of queries ("inside" the corpus, "held" out) and by k. stale: share of rows
    that were removed.
    """

    generation: str = ""
    rows: Count
    distinct: Count
    dim: Count
    space: str
    kind: str
    parameters: IndexParameters
    shards: Count
    bytes: Count
    stale: float
    search: SearchEffort
    recall: dict[str, dict[str, RecallAtK]]
    build_seconds: Number
    queries_per_second: Number | None
    single_query_ms: QueryTimes
    extrapolated_query_ms: QueryTimes

    def to_json(self) -> JsonBytes:
        """The bytes of card.json."""
        return sidecar_json(self)


# -- clusters --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedExample:
    """A removed row beside the kept one it resembles. Texts: None where the corpus has changed."""

    id: object
    text: str | None
    witness: object
    witness_text: str | None
    cos: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeCluster:
    """One of the largest clusters, with some of its removed rows. cluster: its id."""

    cluster: object
    rows: Count
    removed: tuple[RemovedExample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """An entry of summary.json: what was decided at one threshold.

    changes: of an update, rows by what changed. against_fresh: what a fresh run would decide.
    """

    threshold: float
    rows: Count
    kept: Count
    removed: Count
    clusters: Count
    clusters_by_size: dict[str, Count]
    rows_by_reason: dict[str, Count]
    largest: tuple[LargeCluster, ...]
    protected_pairs: Count
    protected_pairs_shown: tuple[tuple[object, ...], ...]
    changes: dict[str, Count] | None = optional()
    against_fresh: dict[str, Count] | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """An entry of topics.json."""

    topic: Count = 0
    rows: Count = 0
    words: tuple[str, ...]


# -- the run that published an artifact ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """_run.json, as far as it is shown. Jobs other than embed write seconds, phases and memory.

    private_bytes: peak memory by process. speeds: of embed, pairs of seconds and tokens per second.
    """

    seconds: Number = 0.0
    phases: dict[str, Number] = field(default_factory=dict)
    private_bytes: dict[str, Count] = field(default_factory=dict)
    repeats: Count | None = None
    tokens: Count = 0
    tokens_per_second: Number = 0.0
    num_actors: Count = 0
    padding_avoided: Count = 0
    speeds: tuple[tuple[Number, ...], ...] = ()


# -- training and evaluation -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTotals:
    """The report of a training. Scores: None without held-out rows."""

    steps: Count
    rows: Count
    measure: str | None = None
    start_score: Number | None = None
    best_score: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """training.json, as far as it is shown. loss: (step, loss); dev: (epoch, score)."""

    report: TrainingTotals
    loss: tuple[tuple[Number, ...], ...]
    dev: tuple[tuple[Number, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord:
    """A score in scores.json, which has a list of them for each model."""

    task: str
    data: str
    measure: str
    value: Number
    is_main: bool


# -- a run of a job file ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """A stage of a run. driver_bytes: peak memory of the driver."""

    name: str
    outcome: str
    seconds: Number
    driver_bytes: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRecord:
    """A limit of the job file. value: None if no stage measures it."""

    name: str
    limit: Number
    value: Number | None
    is_met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """run.json, as far as it is read. evaluated: fingerprint of the scored models and files."""

    seconds: Number
    stages: tuple[StageRecord, ...]
    gates: tuple[GateRecord, ...] = ()
    price_per_hour: Number | None = None
    evaluated: str | None = None
