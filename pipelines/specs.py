"""Frozen description of each job, checked when it is made."""

import re
from dataclasses import dataclass
from pathlib import Path

MAX_UNIT_ROWS = 65_536


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


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedSpec:
    """What `sbert embed` does. Fields carry the names of the options."""

    corpus: str
    model: str
    out: str
    text_column: str = "text"
    text: str | None = None
    id_column: str | None = None
    id: str | None = None
    carry: tuple[str, ...] = ()
    where: str | None = None
    limit: int | None = None
    dtype: str = "float32"
    max_length: int | None = None
    prompt: str | None = None
    truncate_dim: int | None = None
    long: str = "truncate"
    distinct: str = "corpus"
    actors: int | None = None
    gpus_per_actor: float | None = None
    cpus_per_actor: int = 1
    unit_rows: int | None = None
    skip_corrupt: bool = False
    plan: bool = False
    address: str | None = None

    def __post_init__(self) -> None:
        if self.id not in (None, "content"):
            raise ValueError(f"id is {self.id!r}; the only such id is 'content'")
        if self.id is not None and self.id_column is not None:
            raise ValueError("give --id-column or --id content, not both")
        if self.id is not None and self.distinct == "unit":
            raise ValueError(
                "--id content numbers repeats of a text, so it needs --distinct corpus"
            )
        for name in (
            "limit",
            "actors",
            "cpus_per_actor",
            "unit_rows",
            "max_length",
            "truncate_dim",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; give a whole number from 1 up")
        if self.unit_rows is not None and self.unit_rows > MAX_UNIT_ROWS:
            raise ValueError(f"unit_rows is {self.unit_rows}; at most {MAX_UNIT_ROWS}")
        if self.gpus_per_actor is not None and self.gpus_per_actor < 0:
            raise ValueError(f"gpus_per_actor is {self.gpus_per_actor}; give 0 or more")
        if (template := self.text) is not None and "{" not in template:
            raise ValueError(f"text {template!r} names no column; write one as {{column}}")

    @property
    def template(self) -> str:
        """The text of a row, its columns in braces."""
        return self.text if self.text is not None else f"{{{self.text_column}}}"


def _check_positive(spec: object, *names: str) -> None:
    for name in names:
        value = getattr(spec, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; give a whole number from 1 up")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportSpec:
    """What `sbert export` writes. `name` is the table or collection."""

    vectors: str
    to: str
    out: str
    name: str = "vectors"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w{0,62}", self.name):
            raise ValueError(f"name {self.name!r} is no plain name; use letters, digits and _")


@dataclass(frozen=True, kw_only=True, slots=True)
class PathSpec:
    """What `sbert path` prints the folder of."""

    artifact: str
