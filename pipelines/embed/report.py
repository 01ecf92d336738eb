"""What a run of the embed job did and what it cost: the summary line and `_run.json`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pipelines.artifacts.manifest import VectorsManifest
from pipelines.artifacts.reader import published_place
from pipelines.runtime.stage import StageReport
from pipelines.runtime.timing import StageTimer
from workers.common.memory import peak_private_bytes
from workers.embed.records import UnitResult, UnitStats


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedWork:
    """What workers did. stats: of all units of the generation; encoded: results of this run."""

    stats: Sequence[UnitStats]
    encoded: Sequence[UnitResult]
    num_actors: int
    speeds: list[list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedReport(StageReport):
    """Counts and times of one run.

    embedded, tokens and times are those of this run; reused, repeats and tokens saved those of the
    artifact, however many runs it took. Units that were linked whole are not counted.
    """

    folder: str
    rows: int
    quarantined: int
    truncated: int
    lost_tokens: int
    precision: str = "float32"
    precision_error: float | None = None
    embedded: int = 0
    reused: int = 0
    repeats: int = 0
    tokens: int = 0
    tokens_saved: int = 0
    padding_avoided: int = 0
    unknown_tokens: int = 0
    tokens_per_second: float = 0.0
    num_actors: int = 0
    speeds: list[list[float]] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    private_bytes: dict[str, int] = field(default_factory=dict)
    started: float = 0.0
    first_unit_started: float = 0.0
    finished: float = 0.0

    @classmethod
    def nothing_to_do(cls, out: str, manifest: VectorsManifest) -> "EmbedReport":
        """The report of vectors that are up to date."""
        return cls(
            out=out,
            is_new=False,
            folder=published_place(out, manifest),
            rows=manifest.rows,
            quarantined=manifest.quarantined,
            truncated=manifest.metrics.truncated,
            lost_tokens=manifest.metrics.lost_tokens,
            precision=manifest.settings.computed_in,
            precision_error=manifest.metrics.precision_error,
        )

    @classmethod
    def of(
        cls, out: str, manifest: VectorsManifest, work: EmbedWork, timer: StageTimer
    ) -> "EmbedReport":
        """The report of a run that has embedded. manifest: the one to publish at `out`."""
        encoded = work.encoded
        tokens = sum(unit.stats.num_tokens for unit in encoded)
        seconds = timer.phases.get("embed", 0.0)
        return replace(
            cls.nothing_to_do(out, manifest),
            is_new=True,
            embedded=sum(unit.stats.num_encoded for unit in encoded),
            reused=sum(unit.num_reused for unit in work.stats),
            repeats=sum(unit.num_repeats for unit in work.stats),
            tokens=tokens,
            tokens_saved=manifest.metrics.tokens - sum(unit.num_tokens for unit in work.stats),
            padding_avoided=sum(unit.stats.num_padding or 0 for unit in encoded),
            unknown_tokens=sum(unit.stats.num_unknown or 0 for unit in encoded),
            tokens_per_second=tokens / seconds if seconds else 0.0,
            num_actors=work.num_actors,
            speeds=work.speeds,
            seconds=timer.seconds,
            phases={name: round(value, 3) for name, value in timer.phases.items()},
            private_bytes={
                "driver": peak_private_bytes(),
                "actor": max((unit.private_bytes for unit in encoded), default=0),
            },
            started=timer.start,
            first_unit_started=min((unit.start for unit in encoded), default=0.0),
            finished=time.time(),
        )
