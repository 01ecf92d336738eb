"""What manifests state: how an artifact was made, of what, and what was measured, by kind.

In Python these three parts are `settings`, `inputs` and `metrics`; in JSON their keys are `spec`,
`made_from` and `facts`. Fields stand in the order in which they are written. A field with a default
was added later, so older manifests may lack it.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pipelines.artifacts.certificate import Certificate
from sbert_core.corpus.source import CorpusSource, SourceFile
from sbert_core.index.shard_record import ShardRecord
from sbert_core.json_record import Count, optional

Settings = TypeVar("Settings", covariant=True)
Inputs = TypeVar("Inputs", covariant=True)
Metrics = TypeVar("Metrics", covariant=True)


@dataclass(frozen=True, slots=True)
class Kind(Generic[Settings, Inputs, Metrics]):
    """A kind of artifact: its name, the command that makes it, and the types of its three parts.

    is_counted: the rows of its files are the rows of the manifest. An index's files hold rows that
    were removed since, shards are counted by split.
    """

    name: str
    command: str
    settings: type[Settings]
    inputs: type[Inputs]
    metrics: type[Metrics]
    schema: tuple[str, ...] = ()
    is_counted: bool = True


# -- vectors ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsSettings:
    """How vectors were made. scale: of int8; None for other types."""

    model: str
    space: str
    recipe: str
    prompt: str = ""
    max_length: Count = 0
    long: str = "truncate"
    dim: Count
    dtype: str = "float32"
    scale: float | None
    normalized: bool = True
    batch_invariant: bool = False
    precision: str | None = optional()

    @property
    def computed_in(self) -> str:
        """The number format of the encoder; not written where float32 was requested."""
        return self.precision or "float32"

    @property
    def wanted_precision(self) -> str:
        """The word that was given, as far as it shows: a float32 that is written was `auto`."""
        return "auto" if self.precision == "float32" else self.computed_in


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsInputs:
    """What vectors were made from, and which of its columns. shape: digest of the part's recipe."""

    corpus: str
    shape: str = ""
    files: tuple[SourceFile, ...]
    corrupt: tuple[str, ...] = ()
    text: str
    id: str = "column"
    id_column: str | None
    positional: bool = False
    carry: tuple[str, ...] = ()
    where: str | None = None
    limit: Count | None = None
    types: dict[str, str] = field(default_factory=dict)
    partition_types: dict[str, str] = field(default_factory=dict)

    @property
    def texts(self) -> CorpusSource:
        """What is needed to read the texts again."""
        return CorpusSource(
            corpus=self.corpus, files=self.files, text=self.text, id_column=self.id_column
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsMetrics:
    """documents: rows of the corpus; None where each row is one. storage_error: cost in cosines.

    precision_error: the largest 1 - cosine of a sampled vector to that of float32. processors:
    digests of the bits that the processors give which made the vectors.
    """

    documents: Count | None = optional()
    truncated: Count = 0
    lost_tokens: Count = 0
    tokens: Count = 0
    storage_error: dict[str, float] = field(default_factory=dict)
    precision_error: float | None = optional()
    processors: tuple[str, ...] | None = optional()


# -- index -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """How an index was built. factory: FAISS' string; trained: file of what FAISS learned."""

    kind: str
    m: Count
    ef_construction: Count
    seed: int = 0
    factory: str | None
    trained: str | None
    model: str
    space: str
    recipe: str
    dim: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexInputs:
    """target: digest of options and vectors, whatever index was there before."""

    target: str
    vectors: str = ""
    files: tuple[str, ...] = ()
    corpus: CorpusSource


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEffort:
    """How hard to search, and the name of that knob; None where there is none."""

    effort: Count
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallAtK:
    """Share of the true neighbours that was found, with its 95 % interval."""

    value: float
    low: float
    high: float
    num_queries: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMetrics:
    """recall: by sample of queries and by k. stale: share of rows that were removed."""

    search: SearchEffort
    recall: dict[str, dict[str, RecallAtK]] = field(default_factory=dict)
    distinct: Count = 0
    stale: float = 0.0
    shard_records: tuple[ShardRecord, ...]


# -- pairs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsSettings:
    """rerank: digest of the cross-encoder. method: what found the pairs, exact or ivf."""

    threshold: float
    top_k: Count | None
    space: str
    rerank: str | None = None
    band: tuple[float, ...] | None = None
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedVectors:
    """One side of a join. files: sha256 of each."""

    vectors: str
    generation: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsInputs:
    """The side of a self-join, or both."""

    a: JoinedVectors
    b: JoinedVectors | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """An update: new rows were joined with the known ones of an earlier generation."""

    generation: str = field(default="", metadata={"key": "from"})
    new_rows: Count
    known_rows: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsMetrics:
    """By side: rows, distinct vectors, groups of equal rows above the limit."""

    leading: Count = 0
    rows: dict[str, Count]
    distinct: dict[str, Count]
    large_groups: dict[str, Count]
    certificate: Certificate | None
    grown: Grown | None


# -- clusters --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClustersSettings:
    """goal: digest of options and inputs."""

    method: str
    thresholds: tuple[float, ...]
    keep: str = ""
    min_rerank: float | None = None
    topics: Count | None = None
    seed: int = 0
    space: str = ""
    goal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClustersInputs:
    """before: the generation whose kept rows came first."""

    pairs: str
    pairs_generation: str = ""
    vectors: str
    corpus_files: tuple[str, ...]
    vectors_files: tuple[str, ...]
    before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClustersMetrics:
    """kept and removed: rows by threshold."""

    compared_fresh: bool
    kept: dict[str, Count]
    removed: dict[str, Count]


# -- corpus ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSettings:
    """The threshold of the clusters."""

    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedInputs:
    """The clusters and the corpus that rows were taken out of."""

    clusters: str
    clusters_files: tuple[str, ...] = ()
    corpus: str
    id_column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusMetrics:
    """Rows of the corpus before, and those that were taken out."""

    rows_in: Count
    removed: Count


# -- shards ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsSettings:
    """classes: of labelled pairs. negatives: hard ones added per row."""

    format: str
    classes: tuple[str, ...] | None
    score_range: tuple[float, ...] = ()
    seed: int = 0
    length_unit: str = "characters"
    negatives: Count | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsMetrics:
    """left_out: rows by reason. guards: of mined negatives."""

    rows_in: Count | None = optional()
    train: Count = 0
    dev: Count = 0
    negatives: Count = 0
    left_out: dict[str, Count] | None = optional()
    guards: dict[str, float] | None = optional()


VECTORS = Kind(
    "vectors", "embed", VectorsSettings, VectorsInputs, VectorsMetrics, schema=("id", "vector")
)
INDEX = Kind("index", "index", IndexSettings, IndexInputs, IndexMetrics, is_counted=False)
PAIRS = Kind("pairs", "pairs", PairsSettings, PairsInputs, PairsMetrics, schema=("id_a", "id_b"))
CLUSTERS = Kind(
    "clusters", "cluster", ClustersSettings, ClustersInputs, ClustersMetrics, schema=("id",)
)
CORPUS = Kind("corpus", "apply", CorpusSettings, CleanedInputs, CorpusMetrics)
SHARDS = Kind(
    "shards", "prepare", ShardsSettings, dict[str, object], ShardsMetrics, is_counted=False
)
KINDS: dict[str, Kind[object, object, object]] = {
    kind.name: kind for kind in (VECTORS, INDEX, PAIRS, CLUSTERS, CORPUS, SHARDS)
}
