"""What a run of the embed job did and what it cost: the summary line and `_run.json`."""

import time
from dataclasses import dataclass, field
from typing import Any

from pipelines.artifacts.manifest import Manifest
from pipelines.runtime.timing import Phases
from workers.common.memory import peak_private_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedReport:
    """Counts and times of one run.

    embedded, tokens and times are this run's; reused, repeats and tokens saved are the artifact's,
    whatever number of runs it took. Units that were taken over whole are not counted among them.
    """

    out: str
    folder: str
    rows: int
    quarantined: int
    truncated: int
    lost_tokens: int
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
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    private_bytes: dict[str, int] = field(default_factory=dict)
    started: float = 0.0
    first_unit_started: float = 0.0
    finished: float = 0.0

    @classmethod
    def nothing_to_do(cls, out: str, manifest: Manifest) -> "EmbedReport":
        return cls(out=out, **_published(out, manifest))

    @classmethod
    def of(
        cls,
        out: str,
        manifest: Manifest,
        accounts: list[dict[str, Any]],
        encoded: list[dict[str, Any]],
        phases: Phases,
        num_actors: int,
        speeds: list[list[float]],
    ) -> "EmbedReport":
        tokens = sum(unit["num_tokens"] for unit in encoded)
        seconds = phases.seconds.get("embed", 0.0)
        return cls(
            out=out,
            **_published(out, manifest),
            embedded=sum(unit["num_encoded"] for unit in encoded),
            reused=sum(unit["num_reused"] for unit in accounts),
            repeats=sum(unit["num_repeats"] for unit in accounts),
            tokens=tokens,
            tokens_saved=manifest.facts["tokens"] - sum(unit["num_tokens"] for unit in accounts),
            padding_avoided=sum(unit["num_padding"] for unit in encoded),
            unknown_tokens=sum(unit["num_unknown"] for unit in encoded),
            tokens_per_second=tokens / seconds if seconds else 0.0,
            num_actors=num_actors,
            speeds=speeds,
            seconds=phases.total,
            phases={name: round(value, 3) for name, value in phases.seconds.items()},
            private_bytes={
                "driver": peak_private_bytes(),
                "actor": max((unit["private_bytes"] for unit in encoded), default=0),
            },
            started=phases.start,
            first_unit_started=min((unit["start"] for unit in encoded), default=0.0),
            finished=time.time(),
        )


def _published(out: str, manifest: Manifest) -> dict[str, Any]:
    return {
        "folder": f"{out.rstrip('/')}/data/{manifest.generation}",
        "rows": manifest.rows,
        "quarantined": manifest.quarantined,
        "truncated": manifest.facts["truncated"],
        "lost_tokens": manifest.facts["lost_tokens"],
    }
