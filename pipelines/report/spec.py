"""Options of `sbert report`, checked when they are given."""

from pipelines.options import PathKind, Spec, argument, check_positive, option, spec_class


@spec_class
class ReportSpec(Spec):
    """Write one page on a run or on artifacts, and the same as JSON."""

    sources: tuple[str, ...] = argument("The folder of a run, or artifacts.", path=PathKind.INPUT)
    out: str = option("HTML file to write.", default="report.html", path=PathKind.OUTPUT)
    title: str | None = option("Title of the page.", default=None)
    sample: int = option("Points of the map.", default=4000)
    clusters: int = option("Clusters that can be browsed.", default=2000)
    seed: int = option("Random seed of the samples.", default=0)

    def check(self) -> None:
        check_positive(self, "sample", "clusters")
