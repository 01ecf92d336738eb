"""Options of `sbert demo`, checked when they are given."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoSpec:
    """What `sbert demo` does. docstrings: None is what the size of the demo asks for."""

    out: Path
    docstrings: int | None = None
    small: bool = False
    address: str | None = None

    def __post_init__(self) -> None:
        if self.docstrings is not None and self.docstrings < 2:
            raise ValueError(f"docstrings is {self.docstrings}; a pair needs at least 2")
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"out is {self.out}, a file; give a folder, new or existing")
