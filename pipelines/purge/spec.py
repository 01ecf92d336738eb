"""Options of `sbert purge`, checked when they are given."""

from pipelines.options import ADDRESS, RAY_ADDRESS, PathKind, Spec, argument, option, spec_class


@spec_class
class PurgeSpec(Spec):
    """Remove rows that must be forgotten from vectors and indexes, and prove that they are gone."""

    artifacts: tuple[str, ...] = argument(
        "Vectors of `sbert embed` and indexes of `sbert index`.", path=PathKind.INPUT
    )
    id: tuple[str, ...] = option("Id of a row to forget; may be repeated.", default=())
    ids: str | None = option(
        "Text file with an id on each line.", default=None, path=PathKind.INPUT
    )
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        if not self.id and self.ids is None:
            raise ValueError("no id is given; give --id ID, or --ids FILE with an id on each line")
        if "" in self.id:
            raise ValueError("id is ''; give the id of a row")
