"""Options of `sbert cluster`, checked when they are given."""

from dataclasses import dataclass

from pipelines.options import check_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSpec:
    """What `sbert cluster` does. thresholds: none is that of the pairs. vectors: if they moved."""

    pairs: str
    out: str
    method: str = "leaders"
    thresholds: tuple[float, ...] = ()
    keep: str = ""
    protect: str | None = None
    metadata: str | None = None
    vectors: str | None = None
    min_rerank: float | None = None
    max_cluster_share: float = 0.01
    topics: int | None = None
    compare_fresh: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self, "topics")
        if self.method not in ("leaders", "components"):
            raise ValueError(f"method {self.method!r} is unknown; give leaders or components")
        for threshold in self.thresholds:
            if not -1 <= threshold <= 1:
                raise ValueError(f"threshold is {threshold:g}; a cosine lies between -1 and 1")
        if not 0 < self.max_cluster_share <= 1:
            raise ValueError(
                f"max_cluster_share is {self.max_cluster_share:g}; give a share of rows, as 0.01"
            )
