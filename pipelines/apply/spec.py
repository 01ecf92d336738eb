"""Options of `sbert apply`, checked when they are given."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplySpec:
    """What `sbert apply` does. threshold: which of several."""

    clusters: str
    corpus: str
    out: str
    threshold: float | None = None
    address: str | None = None
