"""Options of `sbert threshold`, checked when they are given."""

from pipelines.options import PathKind, Spec, argument, option, spec_class


@spec_class
class ThresholdSpec(Spec):
    """Help to choose a threshold: chance pairs and samples by cosine, or scores against labels."""

    source: str = argument(
        "Vectors of `sbert embed` or pairs of `sbert pairs`.",
        path=PathKind.INPUT,
        metavar="VECTORS|PAIRS",
    )
    labelled: str | None = option(
        "Pairs of ids with a label 1 (same) or 0: id_a, id_b, label.",
        default=None,
        path=PathKind.INPUT,
    )
    samples: int = option("Sample pairs shown at each level.", default=3)
    seed: int = option("Random seed of the samples.", default=0)

    def check(self) -> None:
        if self.samples < 0:
            raise ValueError(f"samples is {self.samples}; give 0 or more")
