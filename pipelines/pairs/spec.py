"""Options of `sbert pairs`, checked when they are given."""

from dataclasses import dataclass

from pipelines.options import check_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsSpec:
    """What `sbert pairs` does. max_edges None: as many as there are."""

    vectors: str
    out: str
    threshold: float | None = None
    against: str | None = None
    method: str = "auto"
    recall: float = 0.99
    top_k: int | None = None
    max_edges: int | None = None
    rerank: str | None = None
    band: tuple[float, float] = (0.85, 0.95)
    seed: int = 0
    address: str | None = None

    def __post_init__(self) -> None:
        check_positive(self, "max_edges", "top_k")
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise ValueError(f"threshold is {self.threshold:g}; a cosine lies between -1 and 1")
        if self.method not in ("auto", "exact", "ivf"):
            raise ValueError(f"method {self.method!r} is unknown; give auto, exact or ivf")
        if not 0 < self.recall < 1:
            raise ValueError(f"recall is {self.recall:g}; give a share, as 0.99")
        if self.top_k is not None and self.method == "ivf":
            raise ValueError("--top-k is exact; leave --method ivf out")
        if self.top_k is not None and self.rerank is not None:
            raise ValueError("--rerank is for pairs above a threshold; leave --top-k out")
        low, high = self.band
        if not -1 <= low <= high <= 1:
            raise ValueError(f"band is {low:g}:{high:g}; give LOW:HIGH, cosines with LOW <= HIGH")

    @property
    def least_cos(self) -> float:
        """Without a word on it 0.9; nearest rows are shown however far they are."""
        if self.threshold is not None:
            return self.threshold
        return 0.9 if self.top_k is None else -1.0
