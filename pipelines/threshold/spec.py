"""Options of `sbert threshold`, checked when they are given."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ThresholdSpec:
    """What `sbert threshold` does. source: vectors or pairs."""

    source: str
    labelled: str | None = None
    samples: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 0:
            raise ValueError(f"samples is {self.samples}; give 0 or more")
