"""Files of any format: whole, or rewritten as Parquet.

In:  Parquet, CSV, TSV and JSON lines, packed or not.
Out: a table, or a Parquet copy that has row ranges to read; a broken file names itself.
"""

import logging
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.corpus.delimited import SeparatedRows
from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.json_lines import JsonRows
from sbert_core.corpus.parquet import opened, reading_error, refuse_fewer
from sbert_core.storage import LocalStorage, Storage

log = logging.getLogger(__name__)

Kinds = dict[str, pa.DataType]
TextRows = JsonRows | SeparatedRows


@dataclass(frozen=True, slots=True)
class TextFile:
    """What a file that was rewritten holds. names: of all its columns, wanted or not."""

    names: tuple[str, ...]
    num_rows: int


def whole_table(
    storage: Storage,
    file: CorpusFile,
    columns: Iterable[str] | None = None,
    text_columns: Iterable[str] | None = None,
) -> pa.Table:
    """All rows of a file of any format. Columns that share a name are left out.

    columns: those to read, a ValueError if there is no such; None: all.
    text_columns: whose values are not taken for numbers or times; None: all.
    """
    columns = None if columns is None else list(columns)
    if file.format is Format.PARQUET:
        with opened(storage, file.path) as parquet:
            names = parquet.schema_arrow.names
            known = TextFile(tuple(names), parquet.metadata.num_rows)
            wanted = None if columns is None else [n for n in columns if n in names]
            table = parquet.read(wanted)
            refuse_fewer(storage, file.path, table.num_rows, known.num_rows)
    else:
        with tempfile.TemporaryDirectory(prefix="sbert-") as folder:
            copy = Path(folder) / "copy.parquet"
            known = write_parquet_copy(storage, file, columns, text_columns, copy)
            with opened(LocalStorage(copy.parent), copy.name) as parquet:
                table = parquet.read()
    if columns is not None:
        if not known.names and not known.num_rows:  # lines of JSON, none of them
            return pa.table({name: pa.nulls(0) for name in columns})
        refuse_missing(file, columns, known.names)
        return table
    if twins := sorted({name for name in known.names if known.names.count(name) > 1}):
        log.warning("%s has several columns %r; none is read", file.path, twins[0])
    return table.select([n for n, name in enumerate(table.column_names) if name not in twins])


def refuse_missing(file: CorpusFile, wanted: Iterable[str], names: Sequence[str]) -> None:
    """A ValueError for a column that a file lacks, or has several times."""
    for name in wanted:
        if name not in names:
            raise ValueError(
                f"{file.path} has no column {name!r}; it has: {', '.join(sorted(set(names)))}"
            )
        if names.count(name) > 1:
            raise ValueError(f"{file.path} has several columns {name!r}; rename all but one")


def write_parquet_copy(
    storage: Storage,
    file: CorpusFile,
    columns: Iterable[str] | None,
    text_columns: Iterable[str] | None,
    target: Path,
) -> TextFile:
    """Rewrite a CSV or JSON lines file, batch by batch, with types that hold for all its rows.

    columns: those to copy, where there are such; None: all.
    text_columns: whose values are not taken for numbers or times; None: all. JSON's own numbers
        are numbers.
    """
    reader = JsonRows if file.format is Format.JSONL else SeparatedRows
    kinds: Kinds = {}
    try:
        rows: TextRows = reader(storage, file, columns, text_columns)
        # Mostly once; again if later rows need wider types than the first block did.
        while (wider := _write(rows, kinds, target)) is not None:
            kinds = wider
    except (pa.ArrowException, OSError) as error:
        raise reading_error(storage, file.path, error) from error
    return TextFile(tuple(rows.names), rows.num_rows)


def _write(rows: TextRows, kinds: Kinds, target: Path) -> Kinds | None:
    """Write all rows under the types of the first block; if they do not hold, those that do."""
    writer: pq.ParquetWriter | None = None
    first: Kinds = {}
    try:
        for batch in rows.batches():
            found = {
                name: rows.widened(name, kinds.get(name, pa.null()), column)
                for name, column in batch.items()
            }
            kinds = kinds | found
            if writer is None:
                first = found
                writer = pq.ParquetWriter(
                    target, pa.schema(list(first.items())), compression="zstd"
                )
            if first == found and first:
                values = [rows.converted(batch[name], kind) for name, kind in first.items()]
                writer.write_batch(pa.record_batch(values, list(first)))
        if writer is None:
            first = {name: kinds.get(name, pa.string()) for name in rows.columns}
            pq.write_table(pa.schema(list(first.items())).empty_table(), target)
    finally:
        if writer is not None:
            writer.close()
    return None if first.items() >= kinds.items() else kinds
