"""Options of `sbert embed`, checked when they are given."""

from dataclasses import dataclass

from pipelines.options import check_positive
from sbert_core.corpus.columns import FIELD, carried_columns

MAX_UNIT_ROWS = 65_536


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedSpec:
    """What `sbert embed` does. Fields carry the names of the options."""

    corpus: str
    model: str
    out: str
    text_column: str = "text"
    text: str | None = None
    id_column: str | None = None
    id: str | None = None
    carry: tuple[str, ...] = ()
    where: str | None = None
    limit: int | None = None
    dtype: str = "float32"
    max_length: int | None = None
    prompt: str | None = None
    truncate_dim: int | None = None
    long: str = "truncate"
    distinct: str = "corpus"
    actors: int | None = None
    gpus_per_actor: float | None = None
    cpus_per_actor: int = 1
    unit_rows: int | None = None
    skip_corrupt: bool = False
    plan: bool = False
    address: str | None = None

    def __post_init__(self) -> None:
        if self.id not in (None, "content"):
            raise ValueError(f"id is {self.id!r}; the only such id is 'content'")
        if self.id is not None and self.id_column is not None:
            raise ValueError("give --id-column or --id content, not both")
        if self.id is not None and self.distinct == "unit":
            raise ValueError(
                "--id content numbers repeats of a text, so it needs --distinct corpus"
            )
        check_positive(
            self, "limit", "actors", "cpus_per_actor", "unit_rows", "max_length", "truncate_dim"
        )
        if self.unit_rows is not None and self.unit_rows > MAX_UNIT_ROWS:
            raise ValueError(f"unit_rows is {self.unit_rows}; at most {MAX_UNIT_ROWS}")
        if self.gpus_per_actor is not None and self.gpus_per_actor < 0:
            raise ValueError(f"gpus_per_actor is {self.gpus_per_actor}; give 0 or more")
        if self.text is not None and not FIELD.search(self.text):
            raise ValueError(f"text {self.text!r} names no column; write one as {{column}}")
        if self.text is None and not FIELD.fullmatch(self.template):
            raise ValueError(
                f"text_column {self.text_column!r} is no name of a column without braces; rename it"
            )
        carried_columns(self.carry)

    @property
    def carried(self) -> dict[str, str]:
        """The column of the corpus behind each published name."""
        return carried_columns(self.carry)

    @property
    def template(self) -> str:
        """The text of a row, its columns in braces."""
        return self.text if self.text is not None else f"{{{self.text_column}}}"
