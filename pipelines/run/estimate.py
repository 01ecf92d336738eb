"""What a run would do, about how long it would take, and what it would cost."""

from dataclasses import dataclass, replace

from pipelines.artifacts.reader import Artifact, typed
from pipelines.cluster.job import ClusterStage
from pipelines.cluster.spec import ClusterSpec
from pipelines.embed import job as embed
from pipelines.embed.estimate import EmbedEstimate
from pipelines.embed.spec import EmbedSpec
from pipelines.index.job import IndexStage
from pipelines.index.spec import IndexSpec
from pipelines.options import Spec
from pipelines.pairs.job import EXACT_CORE_SECONDS, PairsStage
from pipelines.pairs.spec import PairsSpec
from pipelines.run.jobfile import JobFile
from pipelines.runtime.session import num_cores
from pipelines.runtime.stage import ArtifactStage, StageReport
from pipelines.train.spec import TrainSpec
from sbert_core.corpus.published import MANIFEST
from sbert_core.storage import storage_at

# Core-seconds by rows, low and high: measured on two cores at 60,000 and a million rows of 384
# dimensions. Pairs look at every two rows up to their budget; an index inserts one by one.
PAIR_NS = (1.5, 8.0)
INDEX_ROW_SECONDS = (0.0004, 0.0015)
LIGHT_ROW_SECONDS = (2e-6, 2e-5)
INDEX_ROW_BYTES = 200
PAIR_BYTES = 30


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage. seconds: low and high; None where nothing can be said beforehand."""

    name: str
    what: str
    rows: int | None = None
    tokens: int | None = None
    seconds: tuple[float, float] | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """All stages; hours of the workers that embed, and money if the job names a price."""

    stages: tuple[StagePlan, ...]
    seconds: tuple[float, float]
    bytes: int
    worker_hours: tuple[float, float]
    is_gpu: bool
    money: tuple[float, float] | None


def estimate_run(job: JobFile) -> JobPlan:
    """Only the embed stage is looked into: it reads the corpus and times the model on a sample."""
    stages: list[StagePlan] = []
    rows, dim_bytes, hours, is_gpu = 0, 4 * 384, (0.0, 0.0), False
    is_same = True  # nothing above has changed
    for name, spec in job.stages.items():
        if isinstance(spec, EmbedSpec):
            estimate = embed.run(replace(spec, plan=True, model=_model(job, spec)))
            assert isinstance(estimate, EmbedEstimate)
            rows = estimate.rows
            is_same = is_same and estimate.to_embed == 0 and _is_there(spec.out)
            low, high = estimate.seconds
            hours = (low * estimate.actors / 3600, high * estimate.actors / 3600)
            is_gpu = bool(spec.gpus_per_actor)
            dim_bytes = estimate.bytes_out // max(1, rows)
            what = f"{estimate.to_embed:,} texts to embed, {estimate.reused:,} known"
            stages.append(
                StagePlan(name, what, rows, estimate.tokens, (low, high), estimate.bytes_out)
            )
            continue
        is_done = is_same and _is_current(spec)
        is_same = is_same and (is_done or name in ("report", "index"))
        if is_done:
            stages.append(StagePlan(name, "nothing to do"))
        else:
            stages.append(_estimated(name, rows, dim_bytes))
    seconds = _sum([s.seconds for s in stages if s.seconds])
    price = job.price_per_hour
    return JobPlan(
        stages=tuple(stages),
        seconds=seconds,
        bytes=sum(stage.bytes or 0 for stage in stages),
        worker_hours=hours,
        is_gpu=is_gpu,
        money=None if price is None else (price * seconds[0] / 3600, price * seconds[1] / 3600),
    )


def _model(job: JobFile, embed_spec: EmbedSpec) -> str:
    """The encoder, or the one it is trained from as long as there is none."""
    train = job.find(TrainSpec)
    if train is None or embed_spec.model != str(train.out) or train.out.exists():
        return embed_spec.model
    return train.base


def _estimated(name: str, rows: int, dim_bytes: int) -> StagePlan:
    cores = num_cores()
    if name == "pairs" and rows:
        budget = EXACT_CORE_SECONDS
        low, high = (min(budget, rows * rows / 2 * ns / 1e9) / cores + 3 for ns in PAIR_NS)
        return StagePlan(name, "would run", rows, None, (low, high), rows * PAIR_BYTES)
    if name == "index" and rows:
        low, high = (rows * own / cores + 5 for own in INDEX_ROW_SECONDS)
        return StagePlan(
            name, "would run", rows, None, (low, high), rows * (dim_bytes + INDEX_ROW_BYTES)
        )
    if name in ("cluster", "apply", "report"):
        low, high = (rows * own + 2 for own in LIGHT_ROW_SECONDS)
        return StagePlan(name, "would run", rows or None, None, (low, high))
    return StagePlan(name, "would run; its time is not estimated")


def _is_there(place: str) -> bool:
    return storage_at(place).stat(MANIFEST) is not None


def _is_current(spec: Spec) -> bool:
    """Would the stage have nothing to do on what is there now?"""
    if not isinstance(spec, PairsSpec | ClusterSpec | IndexSpec):
        return False
    place = spec.out
    if not _is_there(place):
        return False
    try:
        stage = _make_stage(spec)
        return stage.is_current(typed(Artifact.open(place).manifest, stage.kind, place, ""))
    except (ValueError, FileNotFoundError):
        return False


def _make_stage(
    spec: PairsSpec | ClusterSpec | IndexSpec,
) -> ArtifactStage[object, object, object, StageReport]:
    match spec:
        case PairsSpec():
            return PairsStage(spec)
        case ClusterSpec():
            return ClusterStage(spec)
        case IndexSpec():
            return IndexStage(spec)


def _sum(ranges: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(low for low, _ in ranges), sum(high for _, high in ranges)
