"""Options of `sbert search`, checked when they are given."""

from pipelines.options import (
    ADDRESS,
    PRECISION,
    RAY_ADDRESS,
    PathKind,
    Spec,
    argument,
    check_positive,
    option,
    spec_class,
)
from sbert_core.choices import Precision


@spec_class
class SearchSpec(Spec):
    """Find the closest rows of an index to a text, or to each text of a file."""

    index: str = argument("Index of `sbert index`.", path=PathKind.INPUT)
    text: str | None = argument("Query text.", default=None)
    queries: str | None = option(
        "File of queries instead: Parquet, CSV, TSV or JSON lines.",
        default=None,
        path=PathKind.INPUT,
    )
    text_column: str = option("Column of texts in --queries.", default="text")
    id_column: str | None = option(
        "Column of ids in --queries; 'id' if there is one, else row numbers.", default=None
    )
    k: int = option("Hits per query.", default=10)
    model: str | None = option(
        "Encoder of the queries; the one that made the vectors by default.",
        default=None,
        path=PathKind.MODEL,
    )
    precision: Precision = option(PRECISION, default=Precision.FLOAT32)
    rerank: str | None = option(
        "Cross-encoder to rerank the hits.", default=None, path=PathKind.MODEL
    )
    filter: str | None = option(
        "Search only rows that match, as embed's --where: \"source == 'x' and year > 9\".",
        default=None,
    )
    out: str | None = option(
        "Parquet file for the hits of --queries.", default=None, path=PathKind.OUTPUT
    )
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        check_positive(self, "k")
        if (self.text is None) == (self.queries is None):
            raise ValueError("give one query text, or --queries FILE, one of both")
        if self.text is not None and not self.text.strip():
            raise ValueError("the query is empty; give some text to search for")
        if self.queries is not None and self.out is None:
            raise ValueError("--queries writes a Parquet file; name it with --out")
