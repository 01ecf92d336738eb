"""Texts -> vectors, one row for one row, exactly once.

In:  a corpus of Parquet, CSV or JSON lines, and an encoder.
Out: a vectors artifact. Only new or changed texts pass the model, and each distinct one once.

A run goes: plan the units, scan them for repeats, embed what no earlier run and no earlier unit
has (pass 1), fill in what is borrowed (pass 2), publish. Every step leaves files that a rerun
takes up; only the last one is visible to readers.
"""

import tempfile
from dataclasses import asdict
from functools import cached_property

from pipelines.artifacts.errors import PartialWork
from pipelines.artifacts.kinds import VECTORS, VectorsInputs, VectorsMetrics, VectorsSettings
from pipelines.artifacts.manifest import VectorsManifest
from pipelines.artifacts.writer import Writer
from pipelines.embed.estimate import EmbedEstimate, estimate_embed
from pipelines.embed.executor import EmbedExecutor
from pipelines.embed.identity import EmbedIdentity, compute_generation
from pipelines.embed.manifest import build_manifest
from pipelines.embed.model import ResolvedModel, load_model
from pipelines.embed.report import EmbedReport, EmbedWork
from pipelines.embed.scan import ScanResult, load_or_scan, scan_corpus
from pipelines.embed.spec import EmbedSpec
from pipelines.embed.unit_log import UnitLog
from pipelines.runtime.stage import ArtifactStage, Made, run_stage
from pipelines.runtime.timing import StageTimer
from sbert_core.corpus.errors import ChangedFile
from sbert_core.corpus.files import Corpus, find_corpus, refuse_overlap
from sbert_core.storage import storage_at
from workers.embed.records import UnitResult
from workers.embed.unit_job import UnitJob


def run(spec: EmbedSpec) -> EmbedReport | EmbedEstimate:
    """Bring the artifact in line with the corpus, or estimate what that would take."""
    timer = StageTimer()
    corpus = find_corpus(spec.corpus)
    refuse_overlap(spec.corpus, corpus, spec.out)
    with timer.phase("model"):
        model = load_model(spec)
    if spec.plan:
        with EmbedExecutor(spec) as executor, tempfile.TemporaryDirectory() as folder:
            out = Writer(storage_at(spec.out))
            source = EmbedIdentity(spec, corpus, model, out, folder)
            source.refuse_other_recipes()
            return estimate_embed(scan_corpus(source, executor))
    return run_stage(EmbedStage(spec, corpus, model), timer)


class EmbedStage(ArtifactStage[VectorsSettings, VectorsInputs, VectorsMetrics, EmbedReport]):
    """The vectors of this corpus."""

    kind = VECTORS
    uses_ray = False  # the executor starts Ray with the first task: an update may need none

    def __init__(self, spec: EmbedSpec, corpus: Corpus, model: ResolvedModel) -> None:
        self._spec = spec
        self._corpus = corpus
        self._model = model
        self._report: EmbedReport | None = None

    @property
    def spec(self) -> EmbedSpec:
        return self._spec

    @cached_property
    def identity(self) -> str:
        return compute_generation(self._spec, self._corpus, self._model)

    def refuse(self, out: Writer) -> None:
        self._source(out).refuse_other_recipes()

    def _source(self, out: Writer) -> EmbedIdentity:
        return EmbedIdentity(self._spec, self._corpus, self._model, out, out.storage.uri)

    def make(
        self, out: Writer, timer: StageTimer
    ) -> Made[VectorsSettings, VectorsInputs, VectorsMetrics]:
        """Scan the corpus, embed what is new, fill in what is borrowed."""
        source = self._source(out)
        with EmbedExecutor(self._spec) as executor:
            with timer.phase("plan"):
                scan = load_or_scan(source, executor)
            job = scan.job()
            log = UnitLog.read(job)
            try:
                encoded = _embed(scan, job, log, executor, timer)
                _fill(scan, job, log, executor, timer)
            except KeyboardInterrupt:
                raise PartialWork(_saved(scan, job, "stopped")) from None
            except OSError as error:
                raise PartialWork(_saved(scan, job, f"{error.strerror or error}")) from error
        with timer.phase("manifest"):
            manifest = build_manifest(scan, job, log)
        work = EmbedWork(
            stats=list(log.stats.values()),
            encoded=encoded,
            num_actors=executor.num_actors,
            speeds=executor.speeds.points(),
        )
        self._report = EmbedReport.of(self._spec.out, manifest, work, timer)
        _refuse_changed_corpus(source)
        return Made(
            manifest=manifest,
            rows_in=scan.num_rows_in,
            rows_out=manifest.metrics.documents,
            run=asdict(self._report),
        )

    def report(self, published: VectorsManifest, *, is_new: bool, seconds: float) -> EmbedReport:
        if self._report is not None:
            return self._report
        return EmbedReport.nothing_to_do(self._spec.out, published)


def _embed(
    scan: ScanResult, job: UnitJob, log: UnitLog, executor: EmbedExecutor, timer: StageTimer
) -> list[UnitResult]:
    """Pass 1: encode what each unit owns. Units without anything to encode wait for pass 2."""
    source, counts = scan.identity, scan.counts
    todo = [
        unit
        for unit in scan.plan.new_units
        if counts.own_rows[unit.number]
        and unit.number not in log.commits
        and unit.name not in log.stashed
    ]
    if not todo:
        return []
    # The longest first: what is left for the end is short.
    todo.sort(key=lambda unit: (-counts.own_chars[unit.number], unit.number))
    num_rows = sum(counts.own_rows[unit.number] for unit in todo)
    num_chars = sum(counts.own_chars[unit.number] for unit in todo)
    num_tokens = round(num_chars * scan.tokens_per_char())
    place = executor.place_model(source.model, job.storage, source.work)
    config = source.model.config(place, scan.precision.precision, log.device)
    with timer.phase("embed"):
        results = executor.embed(todo, num_rows, num_tokens, job, config)
    for result in results:
        log.add_encoded(result)
    return results


def _fill(
    scan: ScanResult, job: UnitJob, log: UnitLog, executor: EmbedExecutor, timer: StageTimer
) -> None:
    """Pass 2: commit the units that borrow."""
    todo = [unit for unit in scan.plan.new_units if unit.number not in log.commits]
    if todo:
        with timer.phase("fill"):
            for filled in executor.fill(todo, job, scan.identity.model.dim):
                log.add_filled(filled)


def _refuse_changed_corpus(source: EmbedIdentity) -> None:
    """A file that changed while it was read may have mixed old and new rows."""
    now = {file.path: file for file in find_corpus(source.spec.corpus).files}
    changed = [file.path for file in source.corpus.files if now.get(file.path) != file]
    if changed:
        source.out.discard(source.generation)
        raise ChangedFile(
            source.corpus.root,
            changed[0],
            "changed while it was being embedded; nothing was published, repeat the command when "
            "the corpus is at rest",
        )


def _saved(scan: ScanResult, job: UnitJob, why: str) -> str:
    done, total = len(UnitLog.read(job).commits), len(scan.plan.new_units)
    return f"{why}; {done} of {total} units are saved, the same command goes on from there"
