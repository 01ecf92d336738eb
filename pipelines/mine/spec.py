"""Options of `sbert mine`, checked when they are given."""

from pipelines.options import (
    ADDRESS,
    PRECISION,
    RAY_ADDRESS,
    PathKind,
    Spec,
    argument,
    check_positive,
    option,
    spec_class,
)
from sbert_core.choices import Precision


@spec_class
class MineSpec(Spec):
    """Add hard negatives to ranking shards, by exact search."""

    shards: str = argument("Ranking shards of `sbert prepare`.", path=PathKind.INPUT)
    model: str = option("Encoder to search with: folder, hub id or 'demo'.", path=PathKind.MODEL)
    out: str = option("Folder or s3:// URI of the new shards.", path=PathKind.OUTPUT)
    precision: Precision = option(PRECISION, default=Precision.FLOAT32)
    negatives: int = option("Negatives per row.", default=1)
    margin: float = option(
        "A negative's cosine to the query is at least this far below the answer's.", default=0.05
    )
    ceiling: float = option("Largest cosine of a negative to the answer.", default=0.9)
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        check_positive(self, "negatives")
        if not 0 <= self.margin < 2:
            raise ValueError(f"margin is {self.margin}; give a difference of cosines, 0 to 2")
        if not -1 < self.ceiling <= 1:
            raise ValueError(f"ceiling is {self.ceiling}; give a cosine above -1, at most 1")
