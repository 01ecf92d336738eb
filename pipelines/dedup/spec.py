"""Options of `sbert dedup`, checked when they are given."""

from dataclasses import dataclass
from pathlib import Path

from pipelines.options import refuse_uri


@dataclass(frozen=True, kw_only=True, slots=True)
class DedupSpec:
    """What `sbert dedup` does. threshold: a cosine or auto."""

    file: str
    out: Path
    text_column: str = "text"
    id_column: str | None = None
    threshold: str = "auto"
    keep: str = ""
    model: str = "demo"
    address: str | None = None

    def __post_init__(self) -> None:
        refuse_uri(self.out)
        if self.threshold != "auto":
            try:
                value = float(self.threshold)
            except ValueError:
                raise ValueError(f"threshold {self.threshold!r}; give a cosine or auto") from None
            if not -1 <= value <= 1:
                raise ValueError(f"threshold is {value:g}; a cosine lies between -1 and 1")
