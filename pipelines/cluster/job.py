"""Pairs -> clusters: which rows to keep, and a kept witness for every row that goes.

In:  a pairs artifact, the vectors it was found in, rules of what to keep.
Out: a clusters artifact: `id`, `threshold`, `cluster`, `canonical`, `keep`, `witness`,
     `cos_to_witness`, `reason`; the list of kept ids; `summary.json`.

One process does it, without Ray: 10 million rows and 100 million pairs fit into 8 GiB.
"""

import json
import logging
from dataclasses import dataclass
from functools import cached_property

import pyarrow.parquet as pq

from pipelines.artifacts.edges import read_edges, read_groups
from pipelines.artifacts.ids import IdIndex
from pipelines.artifacts.kinds import (
    CLUSTERS,
    ClustersInputs,
    ClustersMetrics,
    ClustersSettings,
)
from pipelines.artifacts.manifest import ClustersManifest, Manifest
from pipelines.artifacts.reader import Artifact, ClustersArtifact
from pipelines.artifacts.sample_texts import SampleTexts
from pipelines.artifacts.sidecars import SUMMARY, TOPICS, ClusterSummary, Topic, read_sidecar
from pipelines.artifacts.writer import Writer
from pipelines.cluster.decide import Decider, ThresholdClusters
from pipelines.cluster.identity import ClusterIdentity
from pipelines.cluster.previous import PreviousClusters
from pipelines.cluster.spec import ClusterSpec
from pipelines.cluster.summary import summarize
from pipelines.cluster.topics import TopicAssignment, assign_topics
from pipelines.cluster.write import write_changes, write_clusters, write_kept_ids
from pipelines.runtime.stage import ArtifactStage, Made, StageReport, run_stage
from pipelines.runtime.timing import StageTimer
from sbert_core.digest import digest
from sbert_core.json_record import encode
from sbert_core.storage import Storage, storage_at

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport(StageReport):
    """What was decided. summaries: one for each threshold."""

    folder: str
    method: str
    summaries: tuple[ClusterSummary, ...]
    topics: tuple[Topic, ...]


def run(spec: ClusterSpec) -> ClusterReport:
    """Decide which rows to keep, unless these pairs were decided already."""
    return run_stage(ClusterStage(spec))


class ClusterStage(ArtifactStage[ClustersSettings, ClustersInputs, ClustersMetrics, ClusterReport]):
    """Kept rows and witnesses for these pairs."""

    kind = CLUSTERS
    uses_ray = False

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._source = ClusterIdentity.of(spec)

    @property
    def spec(self) -> ClusterSpec:
        return self._spec

    @cached_property
    def identity(self) -> str:
        return self._source.digest

    def is_current(self, manifest: ClustersManifest) -> bool:
        has_comparison = manifest.metrics.compared_fresh or not self.spec.compare_fresh
        return manifest.settings.goal == self.identity and has_comparison

    def make(
        self, out: Writer, timer: StageTimer
    ) -> Made[ClustersSettings, ClustersInputs, ClustersMetrics]:
        spec, source, storage = self.spec, self._source, out.storage
        previous = self._find_previous(out.current_of(CLUSTERS))
        before = None if previous is None else previous.manifest.generation
        generation = digest({"goal": self.identity, "before": before})[:16]
        with timer.phase("read"):
            rows = IdIndex.of(source.vectors)
        decided = self._decide(rows, previous, timer)
        topics = TopicAssignment.none()
        if spec.topics is not None:
            with timer.phase("topics"):
                topics = assign_topics(source.vectors, rows, spec.topics, spec.seed)
        with timer.phase("write"):
            files = write_clusters(storage, generation, decided, rows, topics.topic)
            sidecars = write_kept_ids(storage, generation, decided, rows)
            sidecars += write_changes(storage, generation, decided)
            samples = SampleTexts(source.vectors, rows)
            summaries = [summarize(own, rows, samples) for own in decided]
            storage.put(SUMMARY, _json(summaries))
            storage.put(TOPICS, _json(topics.described))
        manifest = Manifest(
            kind=CLUSTERS.name,
            generation=generation,
            schema=_schema(storage, files[0].path),
            rows=sum(file.rows for file in files),
            quarantined=0,
            files=tuple(files),
            sidecars=tuple(sidecars),
            settings=source.settings,
            inputs=ClustersInputs(
                pairs=source.pairs.uri,
                pairs_generation=source.pairs.manifest.generation,
                vectors=source.vectors.uri,
                corpus_files=tuple(source.corpus_files),
                vectors_files=tuple(file.sha256 for file in source.vectors.manifest.files),
                before=before,
            ),
            metrics=ClustersMetrics(
                compared_fresh=spec.compare_fresh,
                kept={f"{own.threshold:g}": own.kept for own in summaries},
                removed={f"{own.threshold:g}": own.removed for own in summaries},
            ),
        )
        return Made(manifest=manifest, rows_in=source.vectors.rows * len(source.thresholds))

    def _decide(
        self, rows: IdIndex, previous: ClustersArtifact | None, timer: StageTimer
    ) -> list[ThresholdClusters]:
        """The clusters at every threshold."""
        source = self._source
        with timer.phase("read"):
            decider = Decider(source, rows, read_groups(source.pairs, rows))
            edges = read_edges(source.pairs, rows, self.spec.min_rerank)
        decided: list[ThresholdClusters] = []
        for threshold in source.thresholds:
            with timer.phase("decide"):
                earlier = None if previous is None else PreviousClusters.read(previous, threshold)
                decided.append(decider.decide(edges, threshold, earlier))
            kept = int(decided[-1].decision.is_kept.sum())
            log.info("cluster: %s of %s rows kept at %g", f"{kept:,}", f"{len(rows):,}", threshold)
        return decided

    def _find_previous(self, current: ClustersManifest | None) -> ClustersArtifact | None:
        """Clusters of the same rules, whose kept rows come first."""
        if current is None:
            return None
        known = encode(current.settings)
        changed = [name for name, value in self._source.options.items() if known[name] != value]
        if changed:
            log.info("deciding anew: %s changed", ", ".join(changed))
            return None
        if not set(self._source.corpus_files) & set(current.inputs.corpus_files):
            log.info("deciding anew: no file of the corpus was in the last run")
            return None
        return Artifact(self.spec.out, current)

    def report(self, published: ClustersManifest, *, is_new: bool, seconds: float) -> ClusterReport:
        storage = storage_at(self.spec.out)
        return ClusterReport(
            out=self.spec.out,
            folder=Artifact(self.spec.out.rstrip("/"), published).folder,
            method=published.settings.method,
            summaries=read_sidecar(storage, SUMMARY, tuple[ClusterSummary, ...]),
            topics=read_sidecar(storage, TOPICS, tuple[Topic, ...]),
            is_new=is_new,
            seconds=seconds,
        )


def _schema(storage: Storage, path: str) -> dict[str, str]:
    with pq.ParquetFile(storage.open(path)) as file:
        return {field.name: str(field.type) for field in file.schema_arrow}


def _json(value: object) -> bytes:
    return (json.dumps(encode(value), indent=1, ensure_ascii=False, default=str) + "\n").encode()
