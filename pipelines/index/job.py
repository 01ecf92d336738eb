"""Vectors -> an index: shards of plain HNSW or FAISS files, and a card that says what they miss.

In:  a vectors artifact.
Out: an index artifact. An existing one of the same space is updated: shards for new rows,
     tombstones for removed ones, and a fresh build when too much of it is stale.

Shards are built, searched and measured by Ray tasks, one at a time each; every finished step
leaves a note that a rerun takes up.
"""

import json
import logging
from dataclasses import dataclass, replace
from typing import Any

from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import Manifest
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from pipelines.index import plan
from pipelines.index.build import Build
from pipelines.index.card import card_of
from pipelines.index.identity import Goal
from pipelines.index.manifest import card_facts, manifest_of
from pipelines.index.spec import IndexSpec
from pipelines.index.update import MORE_SHARDS, STALE_LIMIT, Update, updated
from pipelines.runtime.failure_cache import remembered
from pipelines.runtime.session import job_session
from sbert_core.corpus.published import DATA
from sbert_core.index.kinds import IndexKind

log = logging.getLogger(__name__)

CARD = "card.json"


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


def run(spec: IndexSpec) -> IndexReport:
    """Bring the index in line with the vectors."""
    vectors = Artifact.vectors(spec.vectors)
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
        with (
            remembered(out, spec, goal.target),
            job_session(spec.out, spec.address),
        ):
            return _reached(goal, out)


def is_done(spec: IndexSpec, current: Manifest) -> bool:
    """Is this the index of the vectors that are there now?"""
    vectors = Artifact.vectors(spec.vectors)
    kind = IndexKind.named(spec.kind, spec.m, spec.ef_construction).fitting(vectors.rows)
    goal = Goal(spec, vectors, kind, _base(spec, current, vectors))
    return current.made_from["target"] == goal.target


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
    pieces = goal.vectors.pieces
    change = None
    if goal.current is not None:
        job = goal.job(out, goal.current.spec["trained"])
        is_same = goal.current.spec["recipe"] == goal.vectors.manifest.spec["recipe"]
        change = updated(job, goal.current, pieces, is_same)
        if reason := _why_anew(goal.current, change, goal.spec):
            log.info("building anew: %s", reason)
            goal, change = replace(goal, current=None), None
    built = Build(goal, out, pieces, change).run()
    manifest = manifest_of(goal, built)
    facts = {"generation": goal.generation, **card_facts(manifest)}
    card = card_of(facts, built.measures, built.seconds)
    out.storage.put(CARD, (json.dumps(card, indent=1) + "\n").encode())
    out.publish(manifest, rows_in=goal.vectors.rows, run=card)
    added = pieces if change is None else change.added
    num_added = sum(piece.size for piece in added)
    num_removed = change.num_dead if change else 0
    return _report(goal.spec, manifest, card, built.num_new, num_added, num_removed)


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
