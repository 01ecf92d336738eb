"""Frozen description of each job, checked when it is made."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoSpec:
    """What `sbert demo` does."""

    out: Path
    docstrings: int = 4000
    address: str | None = None

    def __post_init__(self) -> None:
        if self.docstrings < 2:
            raise ValueError(f"docstrings is {self.docstrings}; a pair needs at least 2")
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"out is {self.out}, a file; give a folder, new or existing")
