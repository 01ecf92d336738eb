"""Vectors -> an index: shards of plain HNSW or FAISS files, and a card that says what they miss.

In:  a vectors artifact.
Out: an index artifact. An existing one of the same space is updated: shards for new rows,
     tombstones for removed ones, and a fresh build when too much of it is stale.

Shards are built, searched and measured by Ray tasks, one at a time each; every finished step
leaves a note that a rerun takes up.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipelines.artifacts import DATA, WORK, Artifact, DataFile, Manifest, Writer, library_versions
from pipelines.indexing import plan
from pipelines.indexing.card import card_of
from pipelines.indexing.measurement import Findings, Measured
from pipelines.indexing.notes import Notes
from pipelines.indexing.update import MORE_SHARDS, STALE_LIMIT, Update, updated
from pipelines.progress import polled, progress
from pipelines.ray_tasks import as_they_come, in_order
from pipelines.session import job_session
from pipelines.specs import IndexSpec
from sbert_core.encoder.fingerprint import digest
from sbert_core.neighbours.index import IndexKind
from workers.index_shard import (
    IndexJob,
    Piece,
    Queries,
    build_shard,
    exact_cosines,
    measure_shard,
    retouch_shard,
    sampled_vectors,
    train_index,
)

log = logging.getLogger(__name__)

CARD = "card.json"
EXACT_ROWS = 500_000  # of one task of exact search
LATENCY_SECONDS = 5.0
ROLES = ("index", "rows", "own")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """The card, and what this run did for it."""

    out: str
    folder: str
    card: dict[str, Any]
    num_built: int
    num_added: int
    num_removed: int
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Goal:
    """This index of those vectors, from what is there."""

    spec: IndexSpec
    vectors: Artifact
    kind: IndexKind
    current: Manifest | None  # None: build from nothing

    @property
    def target(self) -> str:
        """What is to be there in the end, whatever was there before."""
        names = ("kind", "shards", "m", "ef_construction", "train_sample", "recall_sample")
        options = {n: getattr(self.spec, n) for n in (*names, "recall_target", "seed")}
        files = [(file.sha256, file.rows) for file in self.vectors.manifest.files]
        return digest({"options": options, "files": files, "space": self.space})

    @property
    def generation(self) -> str:
        base = self.current.generation if self.current else ""
        return digest({"target": self.target, "base": base})[:16]

    @property
    def space(self) -> str:
        return self.vectors.manifest.spec["space"]


def run(spec: IndexSpec) -> IndexReport:
    """Bring the index in line with the vectors."""
    vectors = _opened(spec.vectors)
    kind = IndexKind.named(spec.kind, spec.m, spec.ef_construction).fitting(vectors.rows)
    if kind.factory is not None:
        kind.untrained(vectors.manifest.spec["dim"])
    if (wanted := f"faiss:{kind.factory}") != spec.kind and kind.factory is not None:
        log.warning(
            "%s has more cells than there are rows (%s); using %s", spec.kind, vectors.rows, wanted
        )
    with Writer.claim(spec.out) as out:
        goal = Goal(spec, vectors, kind, _base(spec, out.current, vectors))
        if out.current is not None and out.current.made_from["target"] == goal.target:
            out.storage.delete([WORK])
            card = json.loads(out.storage.read(CARD))
            return _report(spec, out.current, card, 0, 0, 0, is_new=False)
        with job_session(spec.out, spec.address):
            return _reached(goal, out)


def _opened(place: str) -> Artifact:
    vectors = Artifact.open(place)
    if vectors.manifest.kind != "vectors":
        raise ValueError(
            f"{place} holds {vectors.manifest.kind}, not vectors; make some with sbert embed"
        )
    if not vectors.rows:
        raise ValueError(f"{place} holds no rows; there is nothing to index")
    return vectors


def _base(spec: IndexSpec, current: Manifest | None, vectors: Artifact) -> Manifest | None:
    """The index to update, if it can be."""
    if current is None:
        return None
    if current.kind != "index":
        raise ValueError(f"{spec.out} holds {current.kind}, not an index; choose another --out")
    space = vectors.manifest.spec["space"]
    if current.spec["space"] != space:
        raise ValueError(
            f"{spec.out} is an index of space {current.spec['space'][:12]}, {spec.vectors} holds "
            f"vectors of space {space[:12]}; they cannot be compared: choose another --out"
        )
    is_alike = all(
        current.spec[name] == getattr(spec, name) for name in ("kind", "m", "ef_construction")
    )
    return current if is_alike else None


def _reached(goal: Goal, out: Writer) -> IndexReport:
    """Update if that is worth it, else build; measure; publish."""
    pieces = plan.pieces_of(goal.vectors.manifest.files)
    change = None
    if goal.current is not None:
        job = _job(goal, out, goal.current.spec["trained"])
        is_same = goal.current.spec["recipe"] == goal.vectors.manifest.spec["recipe"]
        change = updated(job, goal.current, pieces, is_same)
        if reason := _why_anew(goal.current, change, goal.spec):
            log.info("building anew: %s", reason)
            goal, change = replace(goal, current=None), None
    return Build(goal, out, pieces, change).published()


def _why_anew(current: Manifest, change: Update, spec: IndexSpec) -> str | None:
    records = current.facts["shard_records"]
    rows = sum(record["rows"] for record in records)
    stale = (rows - sum(record["live"] for record in records) + change.num_dead) / rows
    if stale > STALE_LIMIT:
        return f"{stale:.0%} of the rows would be stale"
    added = sum(piece.size for piece in change.added)
    if len(records) + bool(added) > plan.num_shards(rows + added, spec.shards) + MORE_SHARDS:
        return f"{len(records) + 1} shards are too many"
    return None


def _job(goal: Goal, out: Writer, trained: str | None) -> IndexJob:
    spec = goal.vectors.manifest.spec
    return IndexJob(
        run=goal.generation,
        vectors=goal.vectors.uri,
        out=out.storage.uri,
        folder=f"{DATA}/{goal.generation}",
        kind=goal.kind,
        dim=spec["dim"],
        scale=spec["scale"],
        seed=goal.spec.seed,
        trained=trained,
    )


class Build:
    """One run towards a goal."""

    def __init__(self, goal: Goal, out: Writer, pieces: list[Piece], change: Update | None) -> None:
        self.goal = goal
        self.spec = goal.spec
        self.out = out
        self.pieces = pieces
        self.change = change
        self.notes = Notes(out.storage, f"{WORK}/{goal.generation}")
        self.added = pieces if change is None else change.added
        self.efforts = goal.kind.efforts()[: None if self.spec.recall_target else 1]
        self.job = _job(goal, out, None)

    def published(self) -> IndexReport:
        trained = self._trained()
        self.job = replace(self.job, trained=trained["path"] if trained else None)
        queries = self._queries()
        kept = self._kept()
        built = self._built(queries, first=len(kept))
        exact = self._exact(queries)
        shards = [*kept, *built]
        measures = self._measured(shards, queries)
        measured = Findings(exact, measures).measured(self.efforts, self.spec.recall_target)
        manifest = self._manifest(shards, measured, trained)
        seconds = sum(record["seconds"] for record in built)
        card = card_of(
            {"generation": self.goal.generation, **_card_facts(manifest)}, measures, seconds
        )
        self.out.storage.put(CARD, (json.dumps(card, indent=1) + "\n").encode())
        self.out.publish(manifest, rows_in=self.goal.vectors.rows, run=card)
        num_added = sum(piece.size for piece in self.added)
        removed = self.change.num_dead if self.change else 0
        return _report(self.spec, manifest, card, len(built), num_added, removed)

    def _noted(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What a note says, or what is made now and noted."""
        found = self.notes.find(name)
        if found is None:
            found = make()
            self.notes.keep(name, found)
        return found

    def _trained(self) -> dict[str, Any] | None:
        if self.goal.kind.factory is None:
            return None
        if self.goal.current is not None:
            path = self.goal.current.spec["trained"]
            old = next(file for file in self.goal.current.files if file.path == path)
            return self._linked({"path": old.path, "sha256": old.sha256, "bytes": old.bytes})
        return self._noted("trained", self._train)

    def _train(self) -> dict[str, Any]:
        number = plan.train_rows(self.goal.kind.num_cells, self.spec.train_sample)
        chosen = plan.sampled(self.pieces, number, (self.spec.seed, 0))
        sample = in_order(sampled_vectors, [(self.job, piece) for piece in chosen])
        [made] = in_order(train_index, [(self.job, sample)])
        return made

    def _queries(self) -> Queries:
        inside = plan.sampled(self.pieces, self.spec.recall_sample, (self.spec.seed, 2))
        held = plan.held_sample(self.added, self.spec.recall_sample, self.spec.seed)
        found = in_order(sampled_vectors, [(self.job, piece) for piece in [*inside, *held]])
        return plan.queries_of(found[: len(inside)], found[len(inside) :], held, self.job.dim)

    def _kept(self) -> list[dict[str, Any]]:
        """Shards of the last index, linked; their rows rewritten where some of them changed."""
        if self.change is None or self.goal.current is None:
            return []
        records = [dict(record) for record in self.goal.current.facts["shard_records"]]
        for number, record in enumerate(records):
            record["held"] = {}
            files = [self._linked(file) for file in record["files"]]
            if number in self.change.moved:
                call = (self.job, number, record["files"], self.change.gone,
                        self.change.moved[number])  # fmt: skip
                [(files[1], record["live"])] = in_order(retouch_shard, [call])
                moved = [piece.sha256 for _, piece, _ in self.change.moved[number]]
                staying = [sha for sha in record["parts"] if sha not in self.change.gone]
                record["parts"] = list(dict.fromkeys([*staying, *moved]))
            record["files"] = files
        return records

    def _linked(self, file: dict[str, Any]) -> dict[str, Any]:
        name = f"{self.job.folder}/{file['path'].rpartition('/')[2]}"
        if name != file["path"]:
            self.out.storage.link(file["path"], name)
        return {**file, "path": name}

    def _built(self, queries: Queries, first: int) -> list[dict[str, Any]]:
        rows = sum(piece.size for piece in self.added)
        if not rows:
            return []
        shards = plan.cut(self.added, plan.num_shards(rows, self.spec.shards))
        found = [self.notes.find(f"shard-{first + n:05d}") for n in range(len(shards))]
        todo = [n for n, record in enumerate(found) if record is None]
        calls = [(self.job, first + n, shards[n], queries, self.efforts) for n in todo]
        left = sum(piece.size for n in todo for piece in shards[n])
        by = f"{len(todo)} shards"
        with progress("index", left, by=by) as advance, polled(self.job.run, advance):
            for place, record in as_they_come(build_shard, calls):
                held = record.pop("held")
                self.notes.keep(f"shard-{record['number']:05d}", record, held=held)
                found[todo[place]] = {**record, "held": held}
        return [record for record in found if record is not None]

    def _exact(self, queries: Queries) -> list[tuple[np.ndarray, np.ndarray]]:
        groups: list[list[Piece]] = [[]]
        for piece in self.pieces:
            if sum(p.num_rows for p in groups[-1]) >= EXACT_ROWS:
                groups.append([])
            groups[-1].append(piece)
        return in_order(exact_cosines, [(self.job, group, queries) for group in groups])

    def _measured(self, shards: list[dict[str, Any]], queries: Queries) -> list[dict[str, Any]]:
        calls = [(self.job, s, queries, self.efforts, LATENCY_SECONDS) for s in shards]
        found = in_order(measure_shard, calls)
        for measure in found:
            measure["speed"] = {str(effort): own for effort, own in measure["speed"].items()}
        return found

    def _manifest(
        self, shards: list[dict[str, Any]], measured: Measured, trained: dict[str, Any] | None
    ) -> Manifest:
        vectors = self.goal.vectors.manifest
        files = [
            DataFile(rows=record["rows"], source={"shard": n, "role": role}, **file)
            for n, record in enumerate(shards)
            for role, file in zip(ROLES, record["files"], strict=True)
        ]
        if trained is not None:
            files.append(DataFile(rows=0, source={"role": "trained"}, **trained))
        rows = sum(record["rows"] for record in shards)
        live = sum(record["live"] for record in shards)
        names = ("rows", "live", "nodes", "parts", "files")
        return Manifest(
            kind="index",
            generation=self.goal.generation,
            schema={n: t for n, t in vectors.schema.items() if n != "vector"},
            rows=live,
            quarantined=0,
            files=tuple(files),
            quarantine=(),
            spec={
                **{n: getattr(self.spec, n) for n in ("kind", "m", "ef_construction", "seed")},
                "factory": self.goal.kind.factory,
                "trained": trained and trained["path"],
                **{n: vectors.spec[n] for n in ("model", "space", "recipe", "dim")},
            },
            made_from={
                "target": self.goal.target,
                "vectors": self.goal.vectors.uri,
                "files": [file.sha256 for file in vectors.files],
                "corpus": {
                    n: vectors.made_from[n] for n in ("corpus", "files", "text", "id_column")
                },
            },
            facts={
                "search": {"effort": measured.effort, "name": self.goal.kind.effort_name},
                "recall": measured.facts(),
                "distinct": sum(record["nodes"] for record in shards),
                "stale": round((rows - live) / rows, 6),
                "shard_records": [{n: record[n] for n in names} for record in shards],
            },
            versions=library_versions(),
        )


def _card_facts(manifest: Manifest) -> dict[str, Any]:
    spec = manifest.spec
    return {
        "rows": manifest.rows,
        "distinct": manifest.facts["distinct"],
        "dim": spec["dim"],
        "space": spec["space"],
        "kind": spec["kind"],
        "parameters": {n: spec[n] for n in ("m", "ef_construction", "factory", "seed")},
        "shards": len(manifest.facts["shard_records"]),
        "bytes": sum(file.bytes for file in manifest.files),
        "stale": manifest.facts["stale"],
        "search": manifest.facts["search"],
        "recall": manifest.facts["recall"],
    }


def _report(
    spec: IndexSpec,
    manifest: Manifest,
    card: dict[str, Any],
    num_built: int,
    num_added: int,
    num_removed: int,
    is_new: bool = True,
) -> IndexReport:
    return IndexReport(
        out=spec.out,
        folder=f"{spec.out.rstrip('/')}/{DATA}/{manifest.generation}",
        card=card,
        num_built=num_built,
        num_added=num_added,
        num_removed=num_removed,
        is_new=is_new,
    )
