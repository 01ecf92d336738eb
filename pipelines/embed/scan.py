"""Everything that is decided before the model runs: units, owners of vectors, int8 scale.

In:  the identity of a job, and an executor to scan with.
Out: ScanResult, saved in the work folder so that a rerun continues with it.
"""

import logging
from dataclasses import asdict, dataclass, field, replace

from pipelines.artifacts.layout import WORK
from pipelines.embed.executor import EmbedExecutor
from pipelines.embed.find_owners import OwnerSearch, make_scan_files
from pipelines.embed.identity import EmbedIdentity
from pipelines.embed.plan import make_plan
from pipelines.embed.plan_record import (
    PLAN,
    Plan,
    PlanFile,
    ScanCounts,
    read_plan_file,
    write_plan_file,
)
from pipelines.embed.sample import sample_texts
from pipelines.embed.spec import DistinctScope
from pipelines.embed.staging import Staging
from sbert_core.choices import LongTexts, Precision, VectorType
from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.reader import CorpusReader
from sbert_core.text import invalid_reason
from sbert_core.vectors.quantize import calibrate_scale, count_clipped, measure_cosine_errors
from workers.embed.precision import EXACT, PrecisionProbe
from workers.embed.records import CommitRecord, read_commits
from workers.embed.scan_files import ScanFiles
from workers.embed.unit_job import UnitJob

log = logging.getLogger(__name__)

SAMPLE_TEXTS = 2048
PROBED_TEXTS = 256


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The work of a job: its units and what each must encode.

    files: where the owners of the vectors are. scale: of int8. storage_error: what storing vectors
    in fewer bits costs in cosines. precision: the number format that actors compute in, and what
    that costs.
    """

    identity: EmbedIdentity
    plan: Plan
    counts: ScanCounts
    files: ScanFiles
    scale: float | None = None
    storage_error: dict[str, float] = field(default_factory=dict)
    precision: PrecisionProbe = EXACT

    @property
    def num_rows_in(self) -> int:
        """Rows of all units that pass the filter."""
        return sum(self.counts.rows_in.values()) + self.plan.num_linked_rows

    @property
    def reader(self) -> CorpusReader:
        """How rows of the units are read."""
        return self.plan.reader(self.identity.spec, self.identity.corpus, self.identity.workplace)

    def job(self) -> UnitJob:
        """The settings that all workers share."""
        identity, plan = self.identity, self.plan
        metadata = {"sbert.space": identity.model.space, "sbert.dtype": identity.spec.dtype}
        if self.scale is not None:
            metadata["sbert.scale"] = repr(self.scale)
        return UnitJob(
            out=identity.out.storage.uri,
            generation=identity.generation,
            reader=self.reader,
            num_units=len(plan.units),
            scanned=self.files,
            sources=tuple(part.name for part in plan.earlier),
            source_paths=tuple(part.file for part in plan.earlier),
            dtype=identity.spec.dtype,
            scale=self.scale,
            has_chunks=identity.spec.long is LongTexts.CHUNKS,
            metadata=metadata,
        )

    def tokens_per_char(self) -> float:
        """Tokens per character of a sample of texts, truncated as the model truncates them."""
        sample = sample_texts(self.identity, self.plan, self.plan.new_units, SAMPLE_TEXTS)
        texts = [str(t) for t in sample if not invalid_reason(t)]
        num_tokens = int(self.identity.model.encoder.tokenize(texts).lengths.sum())
        return num_tokens / max(1, sum(map(len, texts)))


def load_or_scan(identity: EmbedIdentity, executor: EmbedExecutor) -> ScanResult:
    """The scan that an unfinished run has saved, or a new one, which is saved."""
    storage = identity.out.storage
    if storage.stat(f"{identity.work}/{PLAN}") is not None:
        log.info("taking up the plan of an unfinished run")
        # An interruption of the whole run is not a crash of any unit.
        storage.delete([f"{identity.work}/attempts"])
        if (saved := read_plan_file(storage, identity.work)) is not None:
            _require_format(identity, Precision(saved.spec.computed_in), executor)
            return _resume_scan(identity, saved)
        log.info("it is of an earlier version: scanning again, what is embedded is kept")
    try:
        scan = scan_corpus(identity, executor)
        scale, error = _calibrate(scan)
        precision = _probe_precision(scan, executor)
    except ValueError:  # a repaired corpus, or other options, will have another generation
        storage.delete([identity.work])
        raise
    record = PlanFile(
        spec=identity.settings(scale, precision.precision),
        plan=scan.plan,
        counts=scan.counts,
        scan=scan.files,
        scale=scale,
        quality=error,
        precision_error=precision.error,
    )
    write_plan_file(storage, identity.work, record)
    return replace(scan, scale=scale, storage_error=error, precision=precision)


def _resume_scan(identity: EmbedIdentity, saved: PlanFile) -> ScanResult:
    precision = Precision(saved.spec.computed_in)
    return ScanResult(
        identity=identity,
        plan=saved.plan,
        counts=saved.counts,
        files=replace(saved.scan, place=identity.workplace),  # the output may have been moved
        scale=saved.scale,
        storage_error=saved.quality,
        precision=PrecisionProbe(precision=precision, error=saved.precision_error),
    )


def _require_format(identity: EmbedIdentity, precision: Precision, executor: EmbedExecutor) -> None:
    """ValueError if workers lack the format of an unfinished run, begun on other machines."""
    if precision is Precision.FLOAT32:
        return
    place = executor.place_model(identity.model, identity.out.storage, identity.work)
    try:
        executor.probe_precision(identity.model.config(place, precision), [])
    except ValueError as error:
        raise ValueError(
            f"unfinished work in {identity.spec.out} cannot go on here: {error}; run it on "
            f"machines like those it began on, or remove {identity.spec.out}/_work"
        ) from error


def scan_corpus(identity: EmbedIdentity, executor: EmbedExecutor) -> ScanResult:
    """Plan the units and scan them for repeats.

    With --skip-corrupt, planning starts again without a file that cannot be read.
    """
    staging = Staging(
        spec=identity.spec,
        corpus=identity.corpus,
        place=identity.workplace,
        folder=f"{identity.work}/staged",
        stage=executor.stage,
    )
    while True:
        try:
            return _plan_and_scan(identity, executor, staging)
        except CorruptFile as error:
            staging.leave_out(error)


def _plan_and_scan(
    identity: EmbedIdentity, executor: EmbedExecutor, staging: Staging
) -> ScanResult:
    plan = make_plan(staging, identity.part_recipe, identity.current, _salvaged_parts(identity))
    files = make_scan_files(
        plan,
        identity.workplace,
        identity.work,
        compares_texts=identity.spec.distinct is DistinctScope.CORPUS,
    )
    reader = plan.reader(identity.spec, identity.corpus, identity.workplace)
    out = identity.out.storage.uri
    counts = executor.scan(OwnerSearch(plan=plan, reader=reader, files=files, out=out))
    return ScanResult(identity, plan, counts, files)


def _salvaged_parts(identity: EmbedIdentity) -> list[CommitRecord]:
    """Parts of unfinished runs with another corpus: vectors to reuse."""
    storage = identity.out.storage
    works = [f"{WORK}/{name}" for name in identity.unfinished()]
    records = [record for work in works for record in read_commits(storage, work)]
    return sorted(records, key=lambda record: (record.data.path, record.file))


def _calibrate(scan: ScanResult) -> tuple[float | None, dict[str, float]]:
    """The int8 scale, and what storing costs in cosines; None and {} for float32.

    The cost is measured on texts of linked and new units alike, since both are published.
    """
    kind = scan.identity.spec.dtype
    if kind is VectorType.FLOAT32:
        return None, {}
    texts = sample_texts(scan.identity, scan.plan, scan.plan.units, SAMPLE_TEXTS)
    sample = scan.identity.model.encode(texts).vectors
    scale = _previous_scale(scan.identity)
    if scale is None and kind is VectorType.INT8:
        scale = calibrate_scale(sample)
    errors = measure_cosine_errors(sample, kind, scale)
    error: dict[str, float] = {"sample": len(sample), **asdict(errors)}
    if scale is not None and (clipped := count_clipped(sample, scale)):
        error["clipped"] = clipped
        log.warning(
            "%d of %d sampled vectors reach beyond the int8 scale of the first run and are "
            "clipped: cosines move by up to %.2g; for a scale of their own embed to another --out",
            clipped,
            len(sample),
            errors.pair_max,
        )
    return scale, error


def _probe_precision(scan: ScanResult, executor: EmbedExecutor) -> PrecisionProbe:
    """The format that actors compute in, found out by the first worker, and its error.

    MixedRecipes where vectors that may be reused have another one.
    """
    identity = scan.identity
    if identity.spec.precision is Precision.FLOAT32:
        return EXACT
    current = identity.current
    if current is not None and not any(scan.counts.own_rows.values()):  # nothing is encoded
        error = current.metrics.precision_error
        return PrecisionProbe(precision=Precision(current.settings.computed_in), error=error)
    texts = sample_texts(identity, scan.plan, scan.plan.new_units, PROBED_TEXTS)
    place = executor.place_model(identity.model, identity.out.storage, identity.work)
    config = identity.model.config(place, identity.spec.precision)
    probe = executor.probe_precision(config, texts)
    identity.refuse_other_precision(probe.precision)
    known = [plan.precision_error for plan in identity.unfinished_plans()]
    if current is not None:
        known.append(current.metrics.precision_error)
    # Vectors of earlier runs stay, and with them their error.
    errors = [error for error in (probe.error, *known) if error is not None]
    return replace(probe, error=max(errors, default=None))


def _previous_scale(identity: EmbedIdentity) -> float | None:
    """The scale of vectors that may be reused: of the last run, or of an unfinished one."""
    if (current := identity.current) is not None and current.rows:
        return current.settings.scale
    return next((plan.scale for plan in identity.unfinished_plans()), None)
