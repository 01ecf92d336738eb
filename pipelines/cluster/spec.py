"""Options of `sbert cluster`, checked when they are given."""

from enum import StrEnum

from pipelines.options import (
    PathKind,
    Spec,
    argument,
    check_cosine,
    check_positive,
    option,
    spec_class,
)


class ClusterMethod(StrEnum):
    """How rows are grouped."""

    LEADERS = "leaders"
    COMPONENTS = "components"


@spec_class
class ClusterSpec(Spec):
    """Decide which rows to keep; every other row has a kept witness."""

    pairs: str = argument("Pairs of `sbert pairs`.", path=PathKind.INPUT)
    out: str = option("Folder or s3:// URI of the clusters.", path=PathKind.OUTPUT)
    method: ClusterMethod = option(
        "How rows are grouped; which rows are kept follows leaders in both.",
        default=ClusterMethod.LEADERS,
    )
    thresholds: tuple[float, ...] = option(
        "Smallest cosine of a duplicate, once or several times; that of the pairs by default.",
        default=(),
        flag="--threshold",
    )
    keep: str = option(
        'Which row of a group to keep, first rule first: "source=a>b,longest,newest:date".',
        default="",
    )
    protect: str | None = option(
        "Ids that are never removed: lines of text, or a table with a column id.",
        default=None,
        path=PathKind.INPUT,
    )
    metadata: str | None = option(
        "Corpus with the columns of --keep that the vectors lack.",
        default=None,
        path=PathKind.INPUT,
    )
    vectors: str | None = option(
        "Where the vectors are now, if they moved.", default=None, path=PathKind.INPUT
    )
    min_rerank: float | None = option(
        "Ignore pairs with a lower cross-encoder score.", default=None
    )
    max_cluster_share: float = option(
        "Largest share of all rows that one component may hold.", default=0.01
    )
    topics: int | None = option("Also sort rows into K topics, named by keywords.", default=None)
    compare_fresh: bool = option("Report how an update differs from a fresh run.", default=False)
    seed: int = option("Random seed of topics.", default=0)

    def check(self) -> None:
        check_positive(self, "topics")
        for threshold in self.thresholds:
            check_cosine("threshold", threshold)
        if not 0 < self.max_cluster_share <= 1:
            raise ValueError(
                f"max_cluster_share is {self.max_cluster_share:g}; give a share of rows, as 0.01"
            )
