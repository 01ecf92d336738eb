"""Pairs -> clusters: which rows to keep, and a kept witness for every row that goes.

In:  a pairs artifact, the vectors it was found in, rules of what to keep.
Out: a clusters artifact: `id`, `threshold`, `cluster`, `canonical`, `keep`, `witness`,
     `cos_to_witness`, `reason`; the list of kept ids; `summary.json`.

One process does it, without Ray: 10 million rows and 100 million pairs fit into 8 GiB.
"""

import json
import logging
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from pipelines.artifacts.edges import read_edges, read_groups
from pipelines.artifacts.ids import Rows
from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import Manifest, library_versions
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.sample_texts import Samples
from pipelines.artifacts.writer import Writer
from pipelines.cluster.decide import Decided, Decider
from pipelines.cluster.identity import Goal
from pipelines.cluster.previous import Before
from pipelines.cluster.spec import ClusterSpec
from pipelines.cluster.summary import summary_of
from pipelines.cluster.topics import Topical, topics_of
from pipelines.cluster.write import change_files, cluster_files, keep_files
from pipelines.runtime.failure_cache import remembered
from pipelines.runtime.timing import Phases
from sbert_core.digest import digest
from sbert_core.storage import Storage
from workers.common.memory import peak_private_bytes

log = logging.getLogger(__name__)

SUMMARY = "summary.json"
TOPICS = "topics.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """What was decided. summaries: one for each threshold."""

    out: str
    folder: str
    method: str
    summaries: tuple[dict[str, Any], ...]
    topics: tuple[dict[str, Any], ...]
    seconds: float
    is_new: bool = True


def run(spec: ClusterSpec) -> ClusterReport:
    """Decide, unless these pairs were decided already."""
    phases = Phases()
    goal = Goal.of(spec)
    with Writer.claim(spec.out) as out:
        current = out.current
        out.refuse_other("clusters")
        if current is not None and _is_done(goal, current):
            out.storage.delete([WORK])
            return _report(spec, out.storage, current, 0.0, is_new=False)
        with remembered(out, spec, goal.digest):
            manifest = _decided(goal, out, phases)
        run_facts = {
            "phases": phases.seconds,
            "seconds": phases.total,
            "private_bytes": {"driver": peak_private_bytes()},
        }
        out.publish(manifest, rows_in=goal.vectors.rows * len(goal.thresholds), run=run_facts)
        return _report(spec, out.storage, manifest, phases.total)


def is_done(spec: ClusterSpec, current: Manifest) -> bool:
    """Are these the clusters of the pairs that are there now?"""
    return _is_done(Goal.of(spec), current)


def _is_done(goal: Goal, current: Manifest) -> bool:
    has_answer = current.facts["compared_fresh"] or not goal.spec.compare_fresh
    return current.spec["goal"] == goal.digest and has_answer


def _decided(goal: Goal, out: Writer, phases: Phases) -> Manifest:
    """Decide at every threshold and write; everything but publishing."""
    spec, storage = goal.spec, out.storage
    before = _before(goal, out.current)
    generation = digest({"goal": goal.digest, "before": before and before.manifest.generation})[:16]
    with phases("read"):
        rows = Rows.of(goal.vectors)
        decider = Decider(goal, rows, read_groups(goal.pairs, rows))
        edges = read_edges(goal.pairs, rows, spec.min_rerank)
    decided: list[Decided] = []
    for threshold in goal.thresholds:
        with phases("decide"):
            earlier = None if before is None else Before.read(before, threshold)
            decided.append(decider.decide(edges, threshold, earlier))
        kept = int(decided[-1].decision.is_kept.sum())
        log.info("cluster: %s of %s rows kept at %g", f"{kept:,}", f"{len(rows):,}", threshold)
    topical = Topical.none()
    if spec.topics is not None:
        with phases("topics"):
            topical = topics_of(goal.vectors, rows, spec.topics, spec.seed)
    with phases("write"):
        files = cluster_files(storage, generation, decided, rows, topical.topic)
        beside = keep_files(storage, generation, decided, rows)
        beside += change_files(storage, generation, decided)
        samples = Samples(goal.vectors, rows)
        summaries = [summary_of(own, rows, samples) for own in decided]
        storage.put(SUMMARY, _json(summaries))
        storage.put(TOPICS, _json(topical.described))
    with pq.ParquetFile(storage.open(files[0].path)) as first:
        schema = {field.name: str(field.type) for field in first.schema_arrow}
    return Manifest(
        kind="clusters",
        generation=generation,
        schema=schema,
        rows=sum(file.rows for file in files),
        quarantined=0,
        files=tuple(files),
        quarantine=(),
        beside=tuple(beside),
        spec={**goal.options, "goal": goal.digest},
        made_from={
            "pairs": goal.pairs.uri,
            "pairs_generation": goal.pairs.manifest.generation,
            "vectors": goal.vectors.uri,
            "corpus_files": goal.corpus_files,
            "vectors_files": [file.sha256 for file in goal.vectors.manifest.files],
            "before": before and before.manifest.generation,
        },
        facts={
            "compared_fresh": spec.compare_fresh,
            "kept": {f"{own['threshold']:g}": own["kept"] for own in summaries},
            "removed": {f"{own['threshold']:g}": own["removed"] for own in summaries},
        },
        versions=library_versions(),
    )


def _before(goal: Goal, current: Manifest | None) -> Artifact | None:
    """Clusters of the same rules, whose kept rows come first."""
    if current is None:
        return None
    changed = [name for name, value in goal.options.items() if current.spec.get(name) != value]
    if changed:
        log.info("deciding anew: %s changed", ", ".join(changed))
        return None
    if not set(goal.corpus_files) & set(current.made_from["corpus_files"]):
        log.info("deciding anew: no file of the corpus was in the last run")
        return None
    return Artifact(goal.spec.out, current)


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n").encode()


def _report(
    spec: ClusterSpec, storage: Storage, manifest: Manifest, seconds: float, is_new: bool = True
) -> ClusterReport:
    return ClusterReport(
        out=spec.out,
        folder=Artifact(spec.out.rstrip("/"), manifest).folder,
        method=manifest.spec["method"],
        summaries=tuple(json.loads(storage.read(SUMMARY))),
        topics=tuple(json.loads(storage.read(TOPICS))),
        seconds=seconds,
        is_new=is_new,
    )
