"""Vectors -> pairs of rows that are at least as similar as a threshold, or each row's nearest.

In:  a vectors artifact, or two of the same space.
Out: a pairs artifact: `id_a`, `id_b`, `cos`. Exactly (none missing) or through cells, with a
     certificate of the share that was found. Groups of more than a thousand rows with equal
     vectors are listed as groups; one row of each stands in the pairs.

Blocks of rows are joined as Ray tasks; every finished step is a file that a rerun takes up. Pairs
of a grown vectors artifact are those of before and those of new rows with all.
"""

import logging
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pipelines.artifacts.certificate import certificate_json
from pipelines.artifacts.errors import TargetMissed
from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import DataFile, Manifest
from pipelines.artifacts.writer import Writer
from pipelines.pairs.exact import Found, exact_edges
from pipelines.pairs.identity import Goal
from pipelines.pairs.incremental import (
    Growth,
    edges_across,
    few_files,
    num_added,
    old_parts,
)
from pipelines.pairs.ivf import CellJoin
from pipelines.pairs.manifest import manifest_of
from pipelines.pairs.setup import Ground, TooManyEdges
from pipelines.pairs.spec import PairsSpec
from pipelines.pairs.top_k import nearest_files
from pipelines.pairs.write import group_files, no_pairs, pair_files
from pipelines.runtime.failure_cache import remembered
from pipelines.runtime.session import job_session
from pipelines.runtime.timing import Phases
from sbert_core.corpus.published import DATA
from sbert_core.vectors.table import VectorTable
from workers.common.memory import peak_private_bytes
from workers.pairs.join_job import JoinJob
from workers.pairs.write import Finish

log = logging.getLogger(__name__)

CERTIFICATE = "certificate.json"
# Up to here `auto` looks at everything: two hours of one core, about three million rows at 0.9.
EXACT_CORE_SECONDS = 7200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsReport:
    """What was found. certificate: of an approximate join."""

    out: str
    folder: str
    pairs: int
    rows: int
    distinct: int
    threshold: float
    top_k: int | None
    groups: int
    method: str
    grown: dict[str, Any] | None
    certificate: dict[str, Any] | None
    seconds: float
    is_new: bool = True


def run(spec: PairsSpec) -> PairsReport:
    """Join, unless the pairs of these vectors are there already."""
    phases = Phases()
    goal = Goal.of(spec)
    with Writer.claim(spec.out) as out:
        out.refuse_other("pairs")
        if out.current is not None and out.current.generation == goal.generation:
            out.storage.delete([WORK])
            return _report(spec, out.current, 0.0, is_new=False)
        with remembered(out, spec, goal.generation):
            with job_session(spec.out, spec.address):
                manifest = Join(goal, out, phases).manifest()
            _refuse_more(goal, manifest, out)
        certificate = manifest.facts["certificate"]
        if certificate is not None:
            out.storage.put(CERTIFICATE, certificate_json(certificate))
        run_facts = {
            "phases": phases.seconds,
            "seconds": phases.total,
            "private_bytes": {"driver": peak_private_bytes()},
        }
        out.publish(manifest, rows_in=manifest.rows, run=run_facts)
        if certificate is None:
            out.storage.delete([CERTIFICATE])
        return _report(spec, manifest, phases.total)


def is_done(spec: PairsSpec, current: Manifest) -> bool:
    """Are these the pairs of the vectors that are there now?"""
    return current.generation == Goal.of(spec).generation


def _refuse_more(goal: Goal, manifest: Manifest, out: Writer) -> None:
    most = goal.spec.max_edges
    if most is not None and manifest.rows > most:
        out.storage.delete([WORK, f"{DATA}/{goal.generation}"])
        raise TooManyEdges(
            f"{manifest.rows:,} pairs were found, more than --max-edges {most:,}; nothing was "
            "published: raise the threshold or allow more edges"
        )


class Join:
    """One run towards a goal."""

    def __init__(self, goal: Goal, out: Writer, phases: Phases) -> None:
        self.goal = goal
        self.spec = goal.spec
        self.out = out
        self.phases = phases
        self.finish = self._finish()

    def manifest(self) -> Manifest:
        """Find the pairs and write them; everything but publishing."""
        growth = Growth.of(self.goal, self.out.current)
        grown = None if growth is None else self._grown(growth)
        return grown or self._whole()

    def _finish(self) -> Finish | None:
        if self.goal.rerank is None:
            return None
        # Loaded by name: a join without a model has no use for torch, which takes 4 s.
        maker = import_module("workers.pairs.rerank").Reranker
        low, high = self.spec.band
        corpora = {name: side.manifest.made_from for name, side in self.goal.sides.items()}
        corpora |= {"new": corpora["a"], "old": corpora["a"]}
        return maker(model=self.goal.rerank[0], low=low, high=high, corpora=corpora)

    def _job(self, a: VectorTable, b: VectorTable) -> JoinJob:
        return JoinJob(
            run=self.goal.generation,
            out=self.out.storage.uri,
            work=f"{WORK}/{self.goal.generation}",
            folder=f"{DATA}/{self.goal.generation}",
            threshold=self.spec.least_cos,
            a=a,
            b=b,
            is_ordered=self.spec.against is None,
        )

    def _whole(self) -> Manifest:
        a = self.goal.vectors.table()
        b = a if self.spec.against is None else self.goal.others.table("b")
        job = self._job(a, b)
        with self.phases("plan"):
            ground = Ground.of(
                job, self.spec.seed, max_edges=self.spec.max_edges, top_k=self.spec.top_k
            )
        certificate = None
        groups: list[DataFile] = []
        if self.spec.top_k is not None:
            method = "exact"
            with self.phases("join"):
                files = nearest_files(ground, self.spec.top_k)
        else:
            with self.phases("join"):
                method, found = self._found(ground)
            certificate = found.certificate
            with self.phases("write"):
                files = pair_files(ground, found, self.finish)
                groups = group_files(ground)
        facts = {**ground.facts, "certificate": certificate, "grown": None}
        files = files or no_pairs(job, self.finish)
        return manifest_of(self.goal, files, groups, method, facts)

    def _found(self, ground: Ground) -> tuple[str, Found]:
        """The edges, by the method that was asked for or that fits, and what found them."""
        method = self.spec.method
        cost = ground.exact_core_seconds
        if method == "auto":
            method = "exact" if cost <= EXACT_CORE_SECONDS else "ivf"
            both = f"{cost:,.1f} core-seconds, budget {EXACT_CORE_SECONDS:,.0f}"
            log.info("looking at all pairs would take about %s: method %s", both, method)
        if method == "exact":
            return method, exact_edges(ground)
        try:
            return method, CellJoin(ground, self.spec.recall, self.spec.seed).run()
        except TargetMissed as error:
            if cost > EXACT_CORE_SECONDS:
                raise
            log.info("%s; looking at all pairs, about %s core-seconds", error, f"{cost:,.1f}")
            return "exact", exact_edges(ground)

    def _grown(self, growth: Growth) -> Manifest | None:
        """Old pairs, and new rows with each other and with the old; None if that cannot be."""
        whole = self.goal.vectors.table()
        new, old = growth.sides(whole)
        log.info("joining %s new rows with %s", f"{new.num_rows:,}", f"{old.num_rows:,}")
        job = self._job(new, old)
        leading, added, files = 0, 0, []
        if new.num_rows:
            with self.phases("plan"):
                own = Ground.of(self._job(new, new), self.spec.seed, beside=[few_files(old)])
            leading, across, parts = own.turn.num_leading, own.with_each_of(old), old_parts(old)
            with self.phases("join"):
                among = exact_edges(own)
                between = edges_across(across, parts, growth.large_groups(self.out.storage))
            if (number := num_added(across, parts)) is None:
                log.info("joining anew: new rows belong to a group above 1,000 equal rows")
                return None
            added = number
            with self.phases("write"):
                files = pair_files(own, among, self.finish)
                files += pair_files(across, between, self.finish)
        files = [*growth.kept_files(job, old), *files]
        facts = {
            "leading": leading,
            "rows": {"a": self.goal.vectors.rows},
            "distinct": {"a": growth.distinct_rows(old, added)},
            "large_groups": growth.before.facts["large_groups"],
            "certificate": growth.before.facts["certificate"],
            "grown": {
                "from": growth.before.generation,
                "new_rows": new.num_rows,
                "known_rows": old.num_rows,
            },
        }
        # Either part may be without rows, and then it has no columns to copy.
        files = files or no_pairs(self._job(whole, whole), self.finish)
        groups = growth.kept_groups(job)
        return manifest_of(self.goal, files, groups, growth.before.spec["method"], facts)


def _report(
    spec: PairsSpec, manifest: Manifest, seconds: float, is_new: bool = True
) -> PairsReport:
    facts: dict[str, Any] = manifest.facts
    return PairsReport(
        out=spec.out,
        folder=f"{spec.out.rstrip('/')}/{DATA}/{manifest.generation}",
        pairs=manifest.rows,
        rows=sum(facts["rows"].values()),
        distinct=sum(facts["distinct"].values()),
        threshold=manifest.spec["threshold"],
        top_k=manifest.spec["top_k"],
        groups=sum(facts["large_groups"].values()),
        method=manifest.spec["method"],
        grown=facts["grown"],
        certificate=facts["certificate"],
        seconds=seconds,
        is_new=is_new,
    )
