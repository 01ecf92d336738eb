"""Options of `sbert pairs`, checked when they are given."""

from enum import StrEnum

from pipelines.options import (
    ADDRESS,
    RAY_ADDRESS,
    PathKind,
    Spec,
    argument,
    check_cosine,
    check_positive,
    option,
    spec_class,
)
from pipelines.syntax import BAND


class JoinMethod(StrEnum):
    """How pairs are found."""

    AUTO = "auto"
    EXACT = "exact"
    IVF = "ivf"


@spec_class
class PairsSpec(Spec):
    """Find all pairs of rows that are at least as similar as a threshold."""

    vectors: str = argument("Vectors of `sbert embed`.", path=PathKind.INPUT)
    out: str = option("Folder or s3:// URI of the pairs.", path=PathKind.OUTPUT)
    threshold: float | None = option(
        "Smallest cosine of a pair; 0.9, or none with --top-k.", default=None
    )
    against: str | None = option(
        "Other vectors to compare with, instead of the rows with each other.",
        default=None,
        path=PathKind.INPUT,
    )
    method: JoinMethod = option(
        "exact compares all rows, ivf compares within cells and certifies its recall, auto "
        "chooses by size.",
        default=JoinMethod.AUTO,
    )
    recall: float = option("Recall the IVF join must certify.", default=0.99)
    top_k: int | None = option("Find the K nearest rows of each row instead.", default=None)
    max_edges: int | None = option("Stop before writing if there are more pairs.", default=None)
    rerank: str | None = option(
        "Cross-encoder that scores the pairs in --band.", default=None, path=PathKind.MODEL
    )
    band: tuple[float, float] = option(
        "Cosines LOW:HIGH to rerank.", default=(0.85, 0.95), syntax=BAND
    )
    seed: int = option("Random seed of samples and cells.", default=0)
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        check_positive(self, "max_edges", "top_k")
        if self.threshold is not None:
            check_cosine("threshold", self.threshold)
        if not 0 < self.recall < 1:
            raise ValueError(f"recall is {self.recall:g}; give a share, as 0.99")
        if self.top_k is not None and self.method is JoinMethod.IVF:
            raise ValueError("--top-k is exact; leave --method ivf out")
        if self.top_k is not None and self.rerank is not None:
            raise ValueError("--rerank is for pairs above a threshold; leave --top-k out")
        low, high = self.band
        if not -1 <= low <= high <= 1:
            raise ValueError(f"band is {low:g}:{high:g}; give LOW:HIGH, cosines with LOW <= HIGH")

    @property
    def least_cos(self) -> float:
        """The threshold, or its default: 0.9; with `top_k` every cosine is allowed."""
        if self.threshold is not None:
            return self.threshold
        return 0.9 if self.top_k is None else -1.0
