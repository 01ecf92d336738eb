"""Options of `sbert search`, checked when they are given."""

from dataclasses import dataclass

from pipelines.options import check_positive


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSpec:
    """What `sbert search` does. Fields carry the names of the options."""

    index: str
    text: str | None = None
    queries: str | None = None
    text_column: str = "text"
    id_column: str | None = None
    k: int = 10
    model: str | None = None
    rerank: str | None = None
    filter: str | None = None
    out: str | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        check_positive(self, "k")
        if (self.text is None) == (self.queries is None):
            raise ValueError("give one query text, or --queries FILE, one of both")
        if self.text is not None and not self.text.strip():
            raise ValueError("the query is empty; give some text to search for")
        if self.queries is not None and self.out is None:
            raise ValueError("--queries writes a Parquet file; name it with --out")
