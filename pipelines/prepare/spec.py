"""Options of `sbert prepare`, checked when they are given."""

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
from pipelines.syntax import RANGE, WORDS
from sbert_core.choices import ExampleFormat


@spec_class
class PrepareSpec(Spec):
    """Turn labelled files into shards to train on, without repeats and leaks."""

    files: tuple[str, ...] = argument("Labelled files.", path=PathKind.INPUT)
    out: str = option("Folder or s3:// URI of the shards.", path=PathKind.OUTPUT)
    format: ExampleFormat = option(
        "Rows hold two texts and a class (pairs), two texts and a score (scored), anchor, positive "
        "and negative (triplets), or a query and its answer (ranking)."
    )
    columns: tuple[str, ...] = option(
        "Columns of texts and label, in order: a,b,label.", default=(), syntax=WORDS
    )
    exclude: tuple[str, ...] = option(
        "Evaluation file whose texts are left out of training.", default=(), path=PathKind.INPUT
    )
    labels: tuple[str, ...] = option(
        "All classes, in order; those of the data by default.", default=(), syntax=WORDS
    )
    skip_label: tuple[str, ...] = option("Class whose rows are left out.", default=())
    score_range: tuple[float, float] = option(
        "LOW,HIGH of scores, scaled to 0..1.", default=(0.0, 1.0), syntax=RANGE
    )
    dev_fraction: float = option("Share of rows held out for evaluation.", default=0.0)
    shards: int | None = option("Files to write; 8 or more by default.", default=None)
    tokenizer: str | None = option(
        "Model whose tokens balance the shards; characters by default.",
        default=None,
        path=PathKind.MODEL,
    )
    seed: int = option("Random seed of the held-out rows and of the shards.", default=0)
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        if not 0 <= self.dev_fraction < 1:
            raise ValueError(f"dev_fraction is {self.dev_fraction}; give 0 up to below 1")
        if self.format is not ExampleFormat.PAIRS and (self.labels or self.skip_label):
            raise ValueError(f"--labels and --skip-label are for pairs; {self.format} has none")
        low, high = self.score_range
        if not low < high:
            raise ValueError(f"score_range is {low:g},{high:g}; give LOW,HIGH with LOW below HIGH")
        check_positive(self, "shards")
