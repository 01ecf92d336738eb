"""What the report page shows, and `report.json` beside it holds: one field for each key.

A `note` is the sentence under a figure or above a list; its key in the JSON is `said`.
"""

from dataclasses import dataclass, field

from sbert_core.json_record import Count, Number

Points = tuple[tuple[Number, ...], ...]  # (x, y) each


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """A number at the top of the page."""

    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLine:
    """A quality gate of the job file."""

    is_met: bool
    note: str = field(metadata={"key": "said"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthHistogram:
    """Texts by number of tokens. labels: the lower end of each bin."""

    labels: tuple[str, ...]
    counts: tuple[Count, ...]
    note: str = field(metadata={"key": "said"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Tokens per second over the seconds of a run."""

    points: Points
    note: str = field(metadata={"key": "said"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineHistogram:
    """Pairs by cosine, one or two sets. limit: position of the threshold between labels."""

    labels: tuple[str, ...]
    sets: dict[str, tuple[Count, ...]]
    limit: float | None
    note: str = field(metadata={"key": "said"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Pairs and removed rows at one threshold."""

    cos: float
    pairs: Count
    removed: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A row of a cluster. text: None where the corpus has changed."""

    id: str
    text: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedRow(ClusterRow):
    """A removed row and the id of the kept one it resembles."""

    cos: float
    witness: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedRowWithText(RemovedRow):
    """A removed row whose witness is not shown as a kept row of the cluster."""

    witness_text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterItem:
    """A cluster with some of its rows. rows: all of them."""

    id: str
    rows: Count
    kept: tuple[ClusterRow, ...]
    removed: tuple[RemovedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterList:
    """Clusters to browse. sizes: clusters by number of rows. total: all of two rows and more."""

    items: tuple[ClusterItem, ...] = ()
    sizes: dict[str, Count] = field(default_factory=dict)
    note: str = field(default="", metadata={"key": "said"})
    total: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MapPoint:
    """A row on the map. group: position in the list of groups. cluster: None for a single row."""

    x: float
    y: float
    group: int
    id: str
    text: str | None
    cluster: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMap:
    """A sample of rows in the plane."""

    points: tuple[MapPoint, ...] = ()
    groups: tuple[str, ...] = ()
    note: str = field(default="", metadata={"key": "said"})


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    """A row without a vector, and why."""

    id: str
    file: str
    row: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineList:
    """The first rows in quarantine."""

    items: tuple[QuarantinedRow, ...] = ()
    note: str = field(default="", metadata={"key": "said"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCurve:
    """Loss and score of one training over its steps. measure: what the score is."""

    name: str
    loss: Points
    scores: Points
    measure: str
    note: str = field(metadata={"key": "said"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of texts, numbers and None."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    note: str | None = field(default=None, metadata={"key": "said", "optional": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """Everything on the page. Sections without content are None or empty."""

    title: str
    subtitle: str
    headline: tuple[Headline, ...]
    gates: tuple[GateLine, ...]
    lengths: LengthHistogram | None
    throughput: Throughput | None
    similarity: CosineHistogram | None
    curve: tuple[CurvePoint, ...]
    clusters: ClusterList
    map: TextMap
    quarantine: QuarantineList
    training: tuple[TrainingCurve, ...]
    scores: tuple[Table, ...]
    index: tuple[Table, ...]
    certificate: tuple[Table, ...]
    stages: tuple[Table, ...]
    notes: tuple[str, ...]
