"""Options of `sbert run`, checked when they are given."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """What `sbert run` does. settings: stage.option=value; start: the first stage to run."""

    job: Path
    settings: tuple[str, ...] = ()
    plan: bool = False
    start: str | None = None
    address: str | None = None
