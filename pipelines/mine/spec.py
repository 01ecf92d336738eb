"""Options of `sbert mine`, checked when they are given."""

from dataclasses import dataclass

from pipelines.options import check_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class MineSpec:
    """What `sbert mine` does. Fields carry the names of the options."""

    shards: str
    model: str
    out: str
    negatives: int = 1
    margin: float = 0.05
    ceiling: float = 0.9
    address: str | None = None

    def __post_init__(self) -> None:
        check_positive(self, "negatives")
        if not 0 <= self.margin < 2:
            raise ValueError(f"margin is {self.margin}; give a difference of cosines, 0 to 2")
        if not -1 < self.ceiling <= 1:
            raise ValueError(f"ceiling is {self.ceiling}; give a cosine above -1, at most 1")
