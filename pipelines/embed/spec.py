"""Options of `sbert embed`, checked when they are given."""

from enum import StrEnum

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
from pipelines.syntax import TEMPLATE, WORDS
from sbert_core.choices import LongTexts, Precision, VectorType
from sbert_core.corpus.columns import FIELD, parse_carry

MAX_UNIT_ROWS = 65_536


class IdSource(StrEnum):
    """What ids are made from where the corpus has no column of them."""

    CONTENT = "content"


class DistinctScope(StrEnum):
    """Where a text that occurs several times is encoded only once."""

    CORPUS = "corpus"
    UNIT = "unit"


@spec_class
class EmbedSpec(Spec):
    """Turn a corpus of texts into vectors; only what is new or changed is embedded."""

    corpus: str = argument(
        "Parquet, CSV, TSV or JSON lines: a file, a folder, a glob or s3://...",
        path=PathKind.INPUT,
    )
    model: str = option(
        "Encoder: folder, s3:// URI, hub id org/name@rev, or 'demo'.", path=PathKind.MODEL
    )
    out: str = option("Folder or s3:// URI of the vectors, new or to update.", path=PathKind.OUTPUT)
    text_column: str = option("Column of texts.", default="text")
    text: str | None = option(
        r"Template of several columns instead: '{title}\n{body}'.", default=None, syntax=TEMPLATE
    )
    id_column: str | None = option(
        "Column of unique ids; 'id' if there is one, else positions.", default=None
    )
    id: IdSource | None = option("Make ids from the texts themselves.", default=None)
    carry: tuple[str, ...] = option(
        "Columns to copy beside the vectors: a,b=c (b as c).", default=(), syntax=WORDS
    )
    where: str | None = option(
        "Rows to take: \"lang in ('en', 'de') and not year < 2020\". A null matches only "
        "'is None', neither year < 2020 nor its opposite.",
        default=None,
    )
    limit: int | None = option("Take the first N rows only.", default=None)
    precision: Precision = option(PRECISION, default=Precision.FLOAT32)
    dtype: VectorType = option("Number format of stored vectors.", default=VectorType.FLOAT32)
    max_length: int | None = option(
        "Tokens per text that the model gets; the model's length by default.", default=None
    )
    prompt: str | None = option(
        "Prefix of every text; the model's document prompt by default.", default=None
    )
    truncate_dim: int | None = option("Keep the first D dimensions.", default=None)
    long: LongTexts = option(
        "Texts longer than --max-length: cut them (truncate), average their windows (pool), or "
        "write one row per window (chunks).",
        default=LongTexts.TRUNCATE,
    )
    distinct: DistinctScope = option(
        "Encode each text once in the whole corpus, or once per unit (fewer passes).",
        default=DistinctScope.CORPUS,
    )
    actors: int | None = option("Embedding actors; one per GPU, or per core.", default=None)
    gpus_per_actor: float | None = option(
        "GPUs per actor; 1 where there are GPUs, else 0.", default=None
    )
    cpus_per_actor: int = option("CPU cores per actor.", default=1)
    unit_rows: int | None = option(
        "Rows per unit of work; 1,024 to 65,536 by file size.", default=None
    )
    skip_corrupt: bool = option("Quarantine unreadable files and go on.", default=False)
    plan: bool = option("Estimate what would be done; write nothing.", default=False)
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        if self.id is not None and self.id_column is not None:
            raise ValueError("give --id-column or --id content, not both")
        if self.id is not None and self.distinct is DistinctScope.UNIT:
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
        self._check_columns()

    def _check_columns(self) -> None:
        if self.text is not None and not FIELD.search(self.text):
            raise ValueError(f"text {self.text!r} names no column; write one as {{column}}")
        if self.text is None and not FIELD.fullmatch(self.template):
            raise ValueError(
                f"text_column {self.text_column!r} is no name of a column without braces; rename it"
            )
        parse_carry(self.carry)

    @property
    def carried(self) -> dict[str, str]:
        """The column of the corpus behind each published name."""
        return parse_carry(self.carry)

    @property
    def template(self) -> str:
        """The text of a row, its columns in braces."""
        return self.text if self.text is not None else f"{{{self.text_column}}}"
