"""What a run found, against what its job file allows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.artifacts.certificate import assured_recall


@dataclass(frozen=True, slots=True)
class Gate:
    """One limit. value: None if no stage of the job measures it."""

    name: str
    limit: float
    value: float | None

    @property
    def is_met(self) -> bool:
        if self.value is None:
            return False
        return (
            self.value <= self.limit if self.name.startswith("max_") else self.value >= self.limit
        )

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name} {self.limit:g}: no stage of the job measures it"
        return f"{self.name} {self.limit:g}: found {self.value:.6g}"


def gates_of(limits: Mapping[str, float], reports: Mapping[str, Any]) -> list[Gate]:
    """reports: what each stage said, by name."""
    return [Gate(name, limit, MEASURES[name](reports)) for name, limit in limits.items()]


def _quarantined_share(reports: Mapping[str, Any]) -> float | None:
    if (embed := reports.get("embed")) is None:
        return None
    return embed.quarantined / max(1, embed.rows + embed.quarantined)


def _recall(reports: Mapping[str, Any]) -> float | None:
    """The lowest that is certified, of pairs and of the index; exact pairs have all."""
    found = []
    if (pairs := reports.get("pairs")) is not None:
        found.append(1.0 if pairs.certificate is None else assured_recall(pairs.certificate))
    if (index := reports.get("index")) is not None:
        found += [own["10"]["low"] for own in index.card["recall"].values() if "10" in own]
    return min(found, default=None)


def _score(reports: Mapping[str, Any]) -> float | None:
    """The lowest main score of the first model."""
    if (evaluated := reports.get("evaluate")) is None:
        return None
    first = next(iter(evaluated.scores.values()))
    return min((score.value for score in first if score.is_main), default=None)


def _removed_share(reports: Mapping[str, Any]) -> float | None:
    if (cluster := reports.get("cluster")) is None:
        return None
    return max(own["removed"] / max(1, own["rows"]) for own in cluster.summaries)


MEASURES = {
    "max_quarantined_share": _quarantined_share,
    "min_recall": _recall,
    "min_score": _score,
    "max_removed_share": _removed_share,
}
