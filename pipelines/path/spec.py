"""Options of `sbert path`."""

from pipelines.options import PathKind, Spec, argument, spec_class


@spec_class
class PathSpec(Spec):
    """Print the published data folder of an artifact, for any Parquet reader."""

    artifact: str = argument("Vectors, pairs, clusters or an index.", path=PathKind.INPUT)
