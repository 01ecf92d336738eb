"""Options of `sbert submit`, checked when they are given."""

import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmitSpec:
    """What `sbert submit` does. words: more options of `sbert run`.

    env: NAME=VALUE, or NAME for its value here; kept out of what is printed of a spec.
    """

    job: Path
    address: str
    settings: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    env: tuple[str, ...] = field(default=(), repr=False)
    job_id: str | None = None
    wait: bool = True

    def __post_init__(self) -> None:
        if not re.match(r"https?://[^/]", self.address):
            raise ValueError(
                f"address {self.address!r} is no URL of a dashboard; give one as http://head:8265"
            )
        for word in self.env:
            if not re.fullmatch(r"[A-Za-z_]\w*", name := word.partition("=")[0]):
                raise ValueError(f"--env {name}: no name of a variable; give NAME=VALUE or NAME")
        if self.job_id is not None and not re.fullmatch(r"[\w.-]{1,128}", self.job_id):
            raise ValueError(f"job_id {self.job_id!r}; use letters, digits, '_', '.' and '-'")
