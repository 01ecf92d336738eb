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
from functools import cached_property
from importlib import import_module

from pipelines.artifacts.certificate import Certificate
from pipelines.artifacts.errors import TargetMissed
from pipelines.artifacts.kinds import PAIRS, Grown, PairsInputs, PairsMetrics, PairsSettings
from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import PairsManifest
from pipelines.artifacts.reader import published_place
from pipelines.artifacts.writer import Writer
from pipelines.pairs.exact import JoinResult, join_exact
from pipelines.pairs.identity import PairsIdentity
from pipelines.pairs.incremental import (
    IncrementalJoin,
    count_added,
    join_with_known,
    known_parts,
    sample_files,
)
from pipelines.pairs.ivf import IvfJoin
from pipelines.pairs.manifest import build_manifest
from pipelines.pairs.setup import JoinSetup, TooManyEdges
from pipelines.pairs.spec import JoinMethod, PairsSpec
from pipelines.pairs.top_k import join_top_k, write_top_k
from pipelines.pairs.write import write_large_groups, write_no_pairs, write_pairs
from pipelines.runtime.stage import ArtifactStage, Made, StageReport, run_stage
from pipelines.runtime.timing import StageTimer
from sbert_core.corpus.published import DATA
from sbert_core.data_file import DataFile
from sbert_core.vectors.table import VectorTable
from workers.pairs.join_job import JoinJob
from workers.pairs.write import PairAnnotator

log = logging.getLogger(__name__)

CERTIFICATE = "certificate.json"
# Up to this cost `auto` compares all pairs: about three million rows at 0.9.
EXACT_CORE_SECONDS = 7200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsReport(StageReport):
    """What was found. certificate: of an approximate join; grown: of an update."""

    folder: str
    pairs: int
    rows: int
    distinct: int
    threshold: float
    top_k: int | None
    groups: int
    method: str
    grown: Grown | None
    certificate: Certificate | None


def run(spec: PairsSpec) -> PairsReport:
    """Join, unless the pairs of these vectors are there already."""
    return run_stage(PairsStage(spec))


class PairsStage(ArtifactStage[PairsSettings, PairsInputs, PairsMetrics, PairsReport]):
    """Similar pairs of these vectors."""

    kind = PAIRS

    def __init__(self, spec: PairsSpec) -> None:
        self._spec, self.address = spec, spec.address
        self._source = PairsIdentity.of(spec)

    @property
    def spec(self) -> PairsSpec:
        return self._spec

    @cached_property
    def identity(self) -> str:
        return self._source.generation

    def make(
        self, out: Writer, timer: StageTimer
    ) -> Made[PairsSettings, PairsInputs, PairsMetrics]:
        join = Join(self._source, out, timer)
        manifest = join.manifest()
        self._refuse_more(manifest, out)
        certificate = manifest.metrics.certificate
        if certificate is not None:
            out.storage.put(CERTIFICATE, certificate.to_json())
        return Made(manifest=manifest, rows_in=join.num_pairs)

    def finish(self, out: Writer, manifest: PairsManifest) -> None:
        if manifest.metrics.certificate is None:
            out.storage.delete([CERTIFICATE])

    def _refuse_more(self, manifest: PairsManifest, out: Writer) -> None:
        most = self.spec.max_edges
        if most is not None and manifest.rows > most:
            out.storage.delete([WORK])
            out.discard(self.identity)
            raise TooManyEdges(
                f"{manifest.rows:,} pairs were found, more than --max-edges {most:,}; nothing was "
                "published: raise the threshold or allow more edges"
            )

    def report(self, published: PairsManifest, *, is_new: bool, seconds: float) -> PairsReport:
        settings, metrics = published.settings, published.metrics
        return PairsReport(
            out=self.spec.out,
            folder=published_place(self.spec.out, published),
            pairs=published.rows,
            rows=sum(metrics.rows.values()),
            distinct=sum(metrics.distinct.values()),
            threshold=settings.threshold,
            top_k=settings.top_k,
            groups=sum(metrics.large_groups.values()),
            method=settings.method,
            grown=metrics.grown,
            certificate=metrics.certificate,
            is_new=is_new,
            seconds=seconds,
        )


class Join:
    """One run of the join. num_pairs: set by `manifest`, counted apart from the written files."""

    def __init__(self, identity: PairsIdentity, out: Writer, timer: StageTimer) -> None:
        self.identity = identity
        self.spec = identity.spec
        self.out = out
        self.timer = timer
        self.finish = self._finish()
        self.num_pairs = 0  # counted by the tasks that find them, to be compared with the files

    def manifest(self) -> PairsManifest:
        """Find the pairs and write them; everything but publishing."""
        growth = IncrementalJoin.plan(self.identity, self.out.current_of(PAIRS))
        grown = None if growth is None else self._join_new(growth)
        return grown or self._join_all()

    def _finish(self) -> PairAnnotator | None:
        if self.identity.rerank is None:
            return None
        # Loaded by name: a join without a model has no use for torch, which takes 4 s.
        maker = import_module("workers.pairs.rerank").Reranker
        low, high = self.spec.band
        corpora = {name: side.manifest.inputs.texts for name, side in self.identity.sides.items()}
        corpora |= {"new": corpora["a"], "old": corpora["a"]}
        return maker(model=self.identity.rerank[0], low=low, high=high, corpora=corpora)

    def _job(self, a: VectorTable, b: VectorTable) -> JoinJob:
        return JoinJob(
            run=self.identity.generation,
            out=self.out.storage.uri,
            work=f"{WORK}/{self.identity.generation}",
            folder=f"{DATA}/{self.identity.generation}",
            threshold=self.spec.least_cos,
            a=a,
            b=b,
            is_ordered=self.spec.against is None,
        )

    def _join_all(self) -> PairsManifest:
        """Join all rows, or the two sides."""
        a = self.identity.vectors.table()
        b = a if self.spec.against is None else self.identity.others.table("b")
        job = self._job(a, b)
        with self.timer.phase("plan"):
            setup = JoinSetup.prepare(
                job, self.spec.seed, max_edges=self.spec.max_edges, top_k=self.spec.top_k
            )
        certificate = None
        groups: list[DataFile] = []
        if self.spec.top_k is not None:
            method = JoinMethod.EXACT
            with self.timer.phase("join"):
                found = join_top_k(setup, self.spec.top_k)
                files = write_top_k(setup, found, self.spec.top_k)
        else:
            with self.timer.phase("join"):
                method, found = self._find_edges(setup)
            certificate = found.certificate
            with self.timer.phase("write"):
                files = write_pairs(setup, found, self.finish)
                groups = write_large_groups(setup)
        self.num_pairs = found.num_pairs
        metrics = setup.metrics(certificate)
        files = files or write_no_pairs(job, self.finish)
        return build_manifest(self.identity, files, groups, method, metrics)

    def _find_edges(self, setup: JoinSetup) -> tuple[JoinMethod, JoinResult]:
        """The method, as requested or as the cost allows, and the edges it found."""
        method = self.spec.method
        cost = setup.exact_core_seconds
        if method is JoinMethod.AUTO:
            method = JoinMethod.EXACT if cost <= EXACT_CORE_SECONDS else JoinMethod.IVF
            both = f"{cost:,.1f} core-seconds, budget {EXACT_CORE_SECONDS:,.0f}"
            log.info("comparing all pairs would take about %s: method %s", both, method)
        if method is JoinMethod.EXACT:
            return method, join_exact(setup)
        try:
            return method, IvfJoin(setup, self.spec.recall, self.spec.seed).run()
        except TargetMissed as error:
            if cost > EXACT_CORE_SECONDS:
                raise
            log.info("%s; comparing all pairs, about %s core-seconds", error, f"{cost:,.1f}")
            return JoinMethod.EXACT, join_exact(setup)

    def _join_new(self, growth: IncrementalJoin) -> PairsManifest | None:
        """Keep known pairs, join new rows with all; None where everything must be joined anew."""
        whole = self.identity.vectors.table()
        new, old = growth.sides(whole)
        log.info("joining %s new rows with %s", f"{new.num_rows:,}", f"{old.num_rows:,}")
        job = self._job(new, old)
        leading, added, files = 0, 0, []
        if new.num_rows:
            with self.timer.phase("plan"):
                own = JoinSetup.prepare(
                    self._job(new, new), self.spec.seed, also_sample=[sample_files(old)]
                )
            leading, across, parts = own.rotation.num_leading, own.against(old), known_parts(old)
            with self.timer.phase("join"):
                among = join_exact(own)
                between = join_with_known(across, parts, growth.large_groups(self.out.storage))
            if (number := count_added(across, parts)) is None:
                log.info("joining anew: new rows belong to a group above 1,000 equal rows")
                return None
            added = number
            with self.timer.phase("write"):
                files = write_pairs(own, among, self.finish)
                files += write_pairs(across, between, self.finish)
            self.num_pairs = among.num_pairs + between.num_pairs
        kept = growth.keep_pairs(job, old)
        self.num_pairs += kept.num_pairs
        files = [*kept.files, *files]
        metrics = PairsMetrics(
            leading=leading,
            rows={"a": self.identity.vectors.rows},
            distinct={"a": growth.count_distinct(old, added)},
            large_groups=growth.previous.metrics.large_groups,
            certificate=growth.previous.metrics.certificate,
            grown=Grown(
                generation=growth.previous.generation,
                new_rows=new.num_rows,
                known_rows=old.num_rows,
            ),
        )
        # Either part may be without rows, and then it has no columns to copy.
        files = files or write_no_pairs(self._job(whole, whole), self.finish)
        groups = growth.keep_groups(job)
        return build_manifest(
            self.identity, files, groups, growth.previous.settings.method, metrics
        )
