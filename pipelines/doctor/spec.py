"""Options of `sbert doctor`, checked when they are given."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorSpec:
    """What `sbert doctor` looks at. storage: places that all nodes should share."""

    storage: tuple[str, ...] = ()
    gpu: bool = False
    address: str | None = None
