"""Options of `sbert index`, checked when they are given."""

from pipelines.options import (
    ADDRESS,
    RAY_ADDRESS,
    PathKind,
    Spec,
    argument,
    check_positive,
    option,
    spec_class,
)
from pipelines.syntax import COUNT_OR_AUTO


@spec_class
class IndexSpec(Spec):
    """Build or update an index of vectors, and measure its recall."""

    vectors: str = argument("Vectors of `sbert embed`.", path=PathKind.INPUT)
    out: str = option("Folder or s3:// URI of the index, new or to update.", path=PathKind.OUTPUT)
    kind: str = option('hnsw, or a FAISS factory string: "faiss:IVF4096,PQ48".', default="hnsw")
    shards: int | None = option(
        "Shards that are built in parallel; auto chooses by size.",
        default=None,
        syntax=COUNT_OR_AUTO,
    )
    m: int = option("Links per node (HNSW M).", default=16)
    ef_construction: int = option("HNSW ef_construction.", default=200)
    train_sample: int | None = option("Rows FAISS trains its cells and codes on.", default=None)
    recall_sample: int = option("Queries to measure recall with.", default=1000)
    recall_target: float | None = option(
        "Raise the search effort until recall@10 reaches this, or fail.", default=None
    )
    seed: int = option("Random seed of the index and of its samples.", default=0)
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        check_positive(self, "shards", "ef_construction", "train_sample", "recall_sample")
        if self.m < 2:
            raise ValueError(f"m is {self.m}; a graph needs 2 or more links a node")
        if self.recall_target is not None and not 0 < self.recall_target < 1:
            raise ValueError(f"recall_target is {self.recall_target}; give a share, as 0.99")
