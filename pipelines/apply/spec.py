"""Options of `sbert apply`."""

from pipelines.options import ADDRESS, RAY_ADDRESS, PathKind, Spec, argument, option, spec_class


@spec_class
class ApplySpec(Spec):
    """Write the corpus without removed rows: same files, schema and order."""

    clusters: str = argument("Clusters of `sbert cluster`.", path=PathKind.INPUT)
    corpus: str = argument("The corpus that was embedded.", path=PathKind.INPUT)
    out: str = option("Folder or s3:// URI of the smaller corpus.", path=PathKind.OUTPUT)
    threshold: float | None = option(
        "Threshold to use, if the clusters have several.", default=None
    )
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)
