"""What a run found, against the limits of its job file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:  # their modules load torch, which a run without training has no use for
    from pipelines.cluster.job import ClusterReport
    from pipelines.embed.report import EmbedReport
    from pipelines.evaluate.job import EvaluateReport
    from pipelines.index.job import IndexReport
    from pipelines.pairs.job import PairsReport

Reports: TypeAlias = Mapping[str, object]  # by stage


@dataclass(frozen=True, slots=True)
class Gate:
    """One limit. value: None if no stage of the job measures it."""

    name: str
    limit: float
    value: float | None

    @property
    def is_met(self) -> bool:
        """At most the limit for `max_` gates, else at least."""
        if self.value is None:
            return False
        return (
            self.value <= self.limit if self.name.startswith("max_") else self.value >= self.limit
        )

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name} {self.limit:g}: no stage of the job measures it"
        return f"{self.name} {self.limit:g}: found {self.value:.6g}"


def measure_gates(limits: Mapping[str, float], reports: Reports) -> list[Gate]:
    """The gates of a job file with what the reports of its stages measured."""
    return [Gate(name, limit, MEASURES[name](reports)) for name, limit in limits.items()]


def _quarantined_share(reports: Reports) -> float | None:
    embed = cast("EmbedReport | None", reports.get("embed"))
    if embed is None:
        return None
    return embed.quarantined / max(1, embed.rows + embed.quarantined)


def _recall(reports: Reports) -> float | None:
    """The lowest that is certified, of pairs and of the index; exact pairs have all."""
    found = []
    pairs = cast("PairsReport | None", reports.get("pairs"))
    if pairs is not None:
        found.append(1.0 if pairs.certificate is None else pairs.certificate.assured_recall)
    index = cast("IndexReport | None", reports.get("index"))
    if index is not None:
        found += [by_k["10"].low for by_k in index.card.recall.values() if "10" in by_k]
    return min(found, default=None)


def _score(reports: Reports) -> float | None:
    """The lowest main score of the first model."""
    evaluated = cast("EvaluateReport | None", reports.get("evaluate"))
    if evaluated is None:
        return None
    first = next(iter(evaluated.scores.values()))
    return min((score.value for score in first if score.is_main), default=None)


def _removed_share(reports: Reports) -> float | None:
    cluster = cast("ClusterReport | None", reports.get("cluster"))
    if cluster is None:
        return None
    return max(own.removed / max(1, own.rows) for own in cluster.summaries)


MEASURES: dict[str, Callable[[Reports], float | None]] = {
    "max_quarantined_share": _quarantined_share,
    "min_recall": _recall,
    "min_score": _score,
    "max_removed_share": _removed_share,
}
