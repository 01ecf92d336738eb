"""Options of `sbert export`, checked when they are given."""

import re
from dataclasses import dataclass


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
