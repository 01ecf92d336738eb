"""Options of `sbert prepare`, checked when they are given."""

from dataclasses import dataclass

from pipelines.options import check_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareSpec:
    """What `sbert prepare` does. Fields carry the names of the options."""

    files: tuple[str, ...]
    out: str
    format: str
    columns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    skip_label: tuple[str, ...] = ()
    score_range: tuple[float, float] = (0.0, 1.0)
    dev_fraction: float = 0.0
    shards: int | None = None
    tokenizer: str | None = None
    seed: int = 0
    address: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.dev_fraction < 1:
            raise ValueError(f"dev_fraction is {self.dev_fraction}; give 0 up to below 1")
        if self.format != "pairs" and (self.labels or self.skip_label):
            raise ValueError(f"--labels and --skip-label are for pairs; {self.format} has none")
        low, high = self.score_range
        if not low < high:
            raise ValueError(f"score_range is {low:g},{high:g}; give LOW,HIGH with LOW below HIGH")
        check_positive(self, "shards")
