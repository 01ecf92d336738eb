"""Options of `sbert index`, checked when they are given."""

from dataclasses import dataclass

from pipelines.options import check_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexSpec:
    """What `sbert index` does. Fields carry the names of the options; shards None: by size."""

    vectors: str
    out: str
    kind: str = "hnsw"
    shards: int | None = None
    m: int = 16
    ef_construction: int = 200
    train_sample: int | None = None
    recall_sample: int = 1000
    recall_target: float | None = None
    seed: int = 0
    address: str | None = None

    def __post_init__(self) -> None:
        check_positive(self, "shards", "ef_construction", "train_sample", "recall_sample")
        if self.m < 2:
            raise ValueError(f"m is {self.m}; a graph needs 2 or more links a node")
        if self.recall_target is not None and not 0 < self.recall_target < 1:
            raise ValueError(f"recall_target is {self.recall_target}; give a share, as 0.99")
