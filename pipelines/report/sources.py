"""Folders -> what a report can show: artifacts, trainings, scores, the record of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pipelines.artifacts.kinds import CLUSTERS, PAIRS, VECTORS, Kind
from pipelines.artifacts.layout import RUN
from pipelines.artifacts.manifest import Manifest
from pipelines.artifacts.reader import (
    AnyArtifact,
    Artifact,
    ClustersArtifact,
    PairsArtifact,
    VectorsArtifact,
    typed,
)
from pipelines.artifacts.sidecars import (
    CARD,
    RUN_RECORD,
    SCORES,
    TOPICS,
    TRAINING,
    IndexCard,
    RunFacts,
    RunRecord,
    ScoreRecord,
    Topic,
    TrainingRecord,
    read_sidecar,
)
from sbert_core.corpus.published import MANIFEST
from sbert_core.storage import Storage, storage_at

Record = TypeVar("Record")
Settings = TypeVar("Settings")
Inputs = TypeVar("Inputs")
Metrics = TypeVar("Metrics")


@dataclass(slots=True)
class ReportSources:
    """What was found, by `find`. Of several artifacts of a kind the last counts.

    trainings: by folder. scores: by model. record: of `sbert run`. runs: of the run that published
    each kind of artifact. stale_kinds: kinds that are left out, since they were made from other
    vectors than those that were found.
    """

    artifacts: dict[str, AnyArtifact] = field(default_factory=dict)
    trainings: dict[str, TrainingRecord] = field(default_factory=dict)
    scores: dict[str, tuple[ScoreRecord, ...]] = field(default_factory=dict)
    card: IndexCard | None = None
    record: RunRecord | None = None
    runs: dict[str, RunFacts] = field(default_factory=dict)
    stale_kinds: tuple[str, ...] = ()

    @classmethod
    def find(cls, places: Sequence[str]) -> "ReportSources":
        """Read some places and the folders in them, one level deep.

        FileNotFoundError if they hold nothing to show; ValueError for a broken file.
        """
        found = cls()
        for place in places:
            found._read_place(place)
            names = {
                stat.name.split("/")[0] for stat in storage_at(place).list() if "/" in stat.name
            }
            for name in sorted(names):
                if name[0] not in "_.":
                    found._read_place(f"{place.rstrip('/')}/{name}")
        if not (found.artifacts or found.trainings or found.scores):
            raise FileNotFoundError(
                f"{', '.join(places)} holds nothing to report on; give the folder of a run, or "
                "artifacts"
            )
        found._add_inputs()
        found._drop_stale()
        return found

    def _read_place(self, place: str) -> None:
        storage = storage_at(place)
        if storage.stat(MANIFEST) is not None:
            artifact = Artifact.open(place)
            kind = artifact.manifest.kind
            self.artifacts[kind] = artifact
            self.runs[kind] = _read_if_there(storage, RUN, RunFacts) or RunFacts()
            self.card = _read_if_there(storage, CARD, IndexCard) or self.card
        training = _read_if_there(storage, TRAINING, TrainingRecord)
        if training is not None:
            self.trainings[place.rstrip("/").rpartition("/")[2]] = training
        self.scores |= _read_if_there(storage, SCORES, dict[str, tuple[ScoreRecord, ...]]) or {}
        # Other programs write a run.json, too.
        if "stages" in (_read_if_there(storage, RUN_RECORD, dict[str, object]) or {}):
            self.record = read_sidecar(storage, RUN_RECORD, RunRecord)

    def _add_inputs(self) -> None:
        """Add the pairs and vectors that clusters were made from, where they still are."""
        if (clusters := self.clusters) is not None:
            self._add(PAIRS.name, clusters.manifest.inputs.pairs)
            if self.vectors is None or self._is_stale(CLUSTERS.name):
                self._read_published(clusters.manifest.inputs.vectors)
        if (pairs := self.pairs) is not None:
            self._add(VECTORS.name, pairs.manifest.inputs.a.vectors)

    def _add(self, kind: str, place: str) -> None:
        if kind not in self.artifacts:
            self._read_published(place)

    def _read_published(self, place: str) -> None:
        if storage_at(place).stat(MANIFEST) is not None:
            self._read_place(place)

    def _is_stale(self, kind: str) -> bool:
        """Was this kind made from other vectors than those that were found?"""
        if self.vectors is None:
            return False
        known = tuple(file.sha256 for file in self.vectors.manifest.files)
        if kind == PAIRS.name:
            return self.pairs is not None and self.pairs.manifest.inputs.a.files != known
        return self.clusters is not None and self.clusters.manifest.inputs.vectors_files != known

    def _drop_stale(self) -> None:
        self.stale_kinds = tuple(
            kind for kind in (PAIRS.name, CLUSTERS.name) if self._is_stale(kind)
        )
        for kind in self.stale_kinds:
            del self.artifacts[kind]

    def _of_kind(
        self, kind: Kind[Settings, Inputs, Metrics]
    ) -> Artifact[Manifest[Settings, Inputs, Metrics]] | None:
        if (own := self.artifacts.get(kind.name)) is None:
            return None
        return Artifact(own.uri, typed(own.manifest, kind, own.uri, ""))

    @property
    def vectors(self) -> VectorsArtifact | None:
        """The vectors, if there are any."""
        return self._of_kind(VECTORS)

    @property
    def pairs(self) -> PairsArtifact | None:
        """The pairs, if there are any."""
        return self._of_kind(PAIRS)

    @property
    def clusters(self) -> ClustersArtifact | None:
        """The clusters, if there are any."""
        return self._of_kind(CLUSTERS)

    @property
    def vectors_run(self) -> RunFacts:
        """The run that embedded the vectors; zeros if it is not known."""
        return self.runs.get(VECTORS.name, RunFacts())

    def topic_names(self) -> tuple[str, ...]:
        """Keywords of each topic of the clusters; none without topics."""
        if self.clusters is None:
            return ()
        storage = storage_at(self.clusters.uri)
        topics = _read_if_there(storage, TOPICS, tuple[Topic, ...]) or ()
        return tuple(" ".join(topic.words) or "?" for topic in topics)


def _read_if_there(storage: Storage, name: str, kind: type[Record]) -> Record | None:
    return read_sidecar(storage, name, kind) if storage.stat(name) else None
