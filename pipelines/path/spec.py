"""Options of `sbert path`."""

from pipelines.options import ADDRESS, RAY_ADDRESS, PathKind, Spec, argument, option, spec_class


@spec_class
class PathSpec(Spec):
    """Print the published data folder of an artifact, for any Parquet reader."""

    artifact: str = argument("Vectors, pairs, clusters or an index.", path=PathKind.INPUT)
    files: bool = option("Print all data files, one per line, for readers of lists.", default=False)
    materialize: bool = option(
        "First copy files of older generations, so that one folder holds all data files.",
        default=False,
    )
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    @property
    def out(self) -> str:
        """The artifact: where files are copied to."""
        return self.artifact
