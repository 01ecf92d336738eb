"""Options of `sbert path`, checked when they are given."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PathSpec:
    """What `sbert path` prints the folder of."""

    artifact: str
