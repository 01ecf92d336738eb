"""Options of `sbert report`, checked when they are given."""

from dataclasses import dataclass

from pipelines.options import check_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportSpec:
    """What `sbert report` does. sources: the folder of a run, or artifacts."""

    sources: tuple[str, ...]
    out: str
    title: str | None = None
    sample: int = 4000
    clusters: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, "sample", "clusters")
