"""Options of `sbert dedup`, checked when they are given."""

from pathlib import Path

from pipelines.options import (
    ADDRESS,
    RAY_ADDRESS,
    PathKind,
    Spec,
    argument,
    check_cosine,
    option,
    refuse_uri,
    spec_class,
)

AUTO = "auto"


@spec_class
class DedupSpec(Spec):
    """Remove near-duplicates from one file: kept, removed with witnesses, report."""

    file: str = argument("Parquet, CSV, TSV or JSON lines file.", path=PathKind.INPUT)
    out: Path = option("Folder for the results.", path=PathKind.OUTPUT)
    text_column: str = option("Column of texts.", default="text")
    id_column: str | None = option("Column of ids; 'id' if there is one.", default=None)
    threshold: str = option(
        "Smallest cosine of near-duplicates; auto measures chance pairs.", default=AUTO
    )
    keep: str = option(
        'Which row of a group to keep: "longest,newest:date"; else the first by id.', default=""
    )
    model: str = option("Encoder: folder, hub id or 'demo'.", default="demo", path=PathKind.MODEL)
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        refuse_uri(self.out)
        if self.threshold != AUTO:
            try:
                value = float(self.threshold)
            except ValueError:
                raise ValueError(f"threshold {self.threshold!r}; give a cosine or auto") from None
            check_cosine("threshold", value)
