"""Options of `sbert evaluate`, checked when they are given."""

from dataclasses import dataclass
from pathlib import Path

from pipelines.options import refuse_uri


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluateSpec:
    """What `sbert evaluate` does. Fields carry the names of the options."""

    models: tuple[str, ...]
    sts: tuple[str, ...] = ()
    sts_aggregate: str = "all"
    nli: tuple[str, ...] = ()
    triplets: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    transfer: str | None = None
    retrieval: str | None = None
    clusters: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    out: Path | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.out is not None:
            refuse_uri(self.out)
        tasks = ("sts", "nli", "triplets", "pairs", "transfer", "retrieval", "clusters", "facets")
        if not any(getattr(self, task) for task in tasks):
            raise ValueError(f"nothing to evaluate on; give one of --{', --'.join(tasks)}")
        for baseline in self.baselines:
            kind, _, place = baseline.partition("=")
            if kind not in ("glove", "tfidf", "mean", "cls") or (kind != "tfidf") != bool(place):
                raise ValueError(
                    f"baseline {baseline!r} is unknown; give glove=FILE, tfidf, mean=MODEL or "
                    "cls=MODEL"
                )
