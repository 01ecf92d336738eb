"""Folders -> what they hold: artifacts, encoders, scores, the record of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.artifacts.layout import RUN
from pipelines.artifacts.reader import Artifact
from sbert_core.corpus.published import MANIFEST
from sbert_core.json_schema import COUNT, NUMBER, checked, read_json
from sbert_core.storage import storage_at

RECORD = "run.json"
TRAINING = "training.json"
SCORES = "scores.json"
CARD = "card.json"
TIMES = {"p50": NUMBER, "p99": NUMBER, "rows": COUNT, "how?": str}
# What is shown of each file, so that a broken one is told from a page that is.
SHAPES: dict[str, Any] = {
    RUN: {
        "seconds?": NUMBER,
        "phases?": {str: NUMBER},
        "private_bytes?": {str: COUNT},
        "repeats?": COUNT,
        "tokens?": COUNT,
        "tokens_per_second?": NUMBER,
        "num_actors?": COUNT,
        "padding_avoided?": COUNT,
        "speeds?": [[NUMBER]],
    },
    CARD: {
        "recall": {str: {str: {"value": NUMBER, "low": NUMBER, "high": NUMBER}}},
        "single_query_ms": TIMES,
        "extrapolated_query_ms": TIMES,
    },
    TRAINING: {
        "report": {
            "steps": COUNT,
            "rows": COUNT,
            "measure?": (str, None),
            "start_score?": (NUMBER, None),
            "best_score?": (NUMBER, None),
        },
        "loss": [[NUMBER]],
        "dev": [[NUMBER]],
    },
    SCORES: {
        str: [{"task": str, "data": str, "measure": str, "value": NUMBER, "is_main": bool}],
    },
    RECORD: dict,
}
RECORD_SHAPE = {
    "seconds": NUMBER,
    "stages": [{"name": str, "outcome": str, "seconds": NUMBER, "driver_bytes?": COUNT}],
    "gates?": [{"name": str, "limit": NUMBER, "value": (NUMBER, None), "is_met": bool}],
    "price_per_hour?": (NUMBER, None),
}


@dataclass(slots=True)
class Found:
    """Everything a report can tell of. Of several artifacts of a kind the last counts.

    left_out: kinds that were found, but made from other vectors than those that are there.
    """

    artifacts: dict[str, Artifact] = field(default_factory=dict)
    trainings: dict[str, dict[str, Any]] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    card: dict[str, Any] | None = None
    record: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @classmethod
    def at(cls, sources: Sequence[str]) -> "Found":
        found = cls()
        for source in sources:
            found._look(source)
            names = {
                stat.name.split("/")[0] for stat in storage_at(source).list() if "/" in stat.name
            }
            for name in sorted(names):
                if name[0] not in "_.":
                    found._look(f"{source.rstrip('/')}/{name}")
        if not (found.artifacts or found.trainings or found.scores):
            raise FileNotFoundError(
                f"{', '.join(sources)} holds nothing to report on; give the folder of a run, or "
                "artifacts"
            )
        found._add_sources()
        found._leave_out_stale()
        return found

    def _look(self, place: str) -> None:
        storage = storage_at(place)

        def loaded(name: str) -> Any:  # noqa: ANN401
            return read_json(storage, name, SHAPES[name]) if storage.stat(name) else None

        if storage.stat(MANIFEST) is not None:
            artifact = Artifact.open(place)
            kind = artifact.manifest.kind
            self.artifacts[kind] = artifact
            self.runs[kind] = loaded(RUN) or {}
            self.card = loaded(CARD) or self.card
        if (training := loaded(TRAINING)) is not None:
            self.trainings[place.rstrip("/").rpartition("/")[2]] = training
        self.scores |= loaded(SCORES) or {}
        if "stages" in (record := loaded(RECORD) or {}):  # else it is somebody else's file
            self.record = checked(record, RECORD_SHAPE, f"{place}/{RECORD}")

    def _add_sources(self) -> None:
        """Pairs and vectors that clusters were made from, where they still are."""
        for kind, option in (("clusters", "pairs"), ("clusters", "vectors"), ("pairs", "vectors")):
            own = self.artifacts.get(kind)
            is_other = (kind, option) == ("clusters", "vectors") and self._is_stale("clusters")
            if own is None or (option in self.artifacts and not is_other):
                continue
            source = own.manifest.made_from
            place = source["a"][option] if kind == "pairs" else source[option]
            if storage_at(place).stat(MANIFEST) is not None:
                self._look(place)

    def _is_stale(self, kind: str) -> bool:
        """Was it made from other vectors than those that are there?"""
        if (own := self.artifacts.get(kind)) is None or self.vectors is None:
            return False
        source = own.manifest.made_from
        made_from = source["a"]["files"] if kind == "pairs" else source["vectors_files"]
        return made_from != [file.sha256 for file in self.vectors.manifest.files]

    def _leave_out_stale(self) -> None:
        self.left_out = tuple(kind for kind in ("pairs", "clusters") if self._is_stale(kind))
        for kind in self.left_out:
            del self.artifacts[kind]

    @property
    def vectors(self) -> Artifact | None:
        return self.artifacts.get("vectors")

    @property
    def pairs(self) -> Artifact | None:
        return self.artifacts.get("pairs")

    @property
    def clusters(self) -> Artifact | None:
        return self.artifacts.get("clusters")

    @property
    def generations(self) -> dict[str, str]:
        return {kind: own.manifest.generation for kind, own in self.artifacts.items()}
