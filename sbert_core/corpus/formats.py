"""Read files of any format whole, or convert them to Parquet.

In:  Parquet, CSV, TSV and JSON lines, compressed or not.
Out: a table, or a Parquet copy, of which row ranges can be read; CorruptFile for a broken file.
"""

import logging
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.corpus.delimited import DelimitedRows
from sbert_core.corpus.errors import InvalidColumn
from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.json_lines import JsonRows
from sbert_core.corpus.parquet import check_row_count, open_parquet, to_read_error
from sbert_core.storage import LocalStorage, Storage

log = logging.getLogger(__name__)

ColumnTypes = dict[str, pa.DataType]
TextRows = JsonRows | DelimitedRows


@dataclass(frozen=True, slots=True)
class ConvertedFile:
    """What a converted file holds. names: of all its columns, wanted or not."""

    names: tuple[str, ...]
    num_rows: int


def read_table(
    storage: Storage,
    file: CorpusFile,
    columns: Iterable[str] | None = None,
    text_columns: Iterable[str] | None = None,
) -> pa.Table:
    """All rows of a file of any format. Columns that share a name are left out with a warning.

    columns: those to read, a ValueError if one is missing; None: all.
    text_columns: those that are never parsed as numbers or times; None: all.
    """
    columns = None if columns is None else list(columns)
    if file.format is Format.PARQUET:
        with open_parquet(storage, file.path) as parquet:
            names = parquet.schema_arrow.names
            known = ConvertedFile(tuple(names), parquet.metadata.num_rows)
            wanted = None if columns is None else [n for n in columns if n in names]
            table = parquet.read(wanted)
            check_row_count(storage, file.path, table.num_rows, known.num_rows)
    else:
        with tempfile.TemporaryDirectory(prefix="sbert-") as folder:
            copy = Path(folder) / "copy.parquet"
            known = write_parquet_copy(storage, file, columns, text_columns, copy)
            with open_parquet(LocalStorage(copy.parent), copy.name) as parquet:
                table = parquet.read()
    if columns is not None:
        if not known.names and not known.num_rows:  # JSON lines without a line
            return pa.table({name: pa.nulls(0) for name in columns})
        check_columns(file, columns, known.names)
        return table
    if repeated := sorted({name for name in known.names if known.names.count(name) > 1}):
        log.warning("%s has several columns %r; none is read", file.path, repeated[0])
    return table.select([n for n, name in enumerate(table.column_names) if name not in repeated])


def check_columns(file: CorpusFile, wanted: Iterable[str], names: Sequence[str]) -> None:
    """InvalidColumn for a wanted column that is missing from `names` or occurs there twice."""
    for name in wanted:
        if names.count(name) != 1:
            raise InvalidColumn(file.path, name, tuple(names))


def write_parquet_copy(
    storage: Storage,
    file: CorpusFile,
    columns: Iterable[str] | None,
    text_columns: Iterable[str] | None,
    target: Path,
) -> ConvertedFile:
    """Convert a CSV or JSON lines file to Parquet, batch by batch, with types that fit all rows.

    columns: those to copy if the file has them; None: all.
    text_columns: strings that are never parsed as numbers or times; None: all.
    target: path of the copy. CorruptFile where the file cannot be read.
    """
    reader = JsonRows if file.format is Format.JSONL else DelimitedRows
    kinds: ColumnTypes = {}
    try:
        rows: TextRows = reader(storage, file, columns, text_columns)
        # One pass for most files; another if later rows need wider types than the first block.
        while (wider := _write(rows, kinds, target)) is not None:
            kinds = wider
    except (pa.ArrowException, OSError) as error:
        raise to_read_error(storage, file.path, error) from error
    return ConvertedFile(tuple(rows.names), rows.num_rows)


def _write(rows: TextRows, kinds: ColumnTypes, target: Path) -> ColumnTypes | None:
    """Write all rows with the types of the first block; the wider types if those do not fit."""
    writer: pq.ParquetWriter | None = None
    first: ColumnTypes = {}
    try:
        for batch in rows.batches():
            found = {
                name: rows.widen_type(name, kinds.get(name, pa.null()), column)
                for name, column in batch.items()
            }
            kinds = kinds | found
            if writer is None:
                first = found
                writer = pq.ParquetWriter(
                    target, pa.schema(list(first.items())), compression="zstd"
                )
            if first == found and first:
                values = [rows.convert(batch[name], kind) for name, kind in first.items()]
                writer.write_batch(pa.record_batch(values, list(first)))
        if writer is None:
            first = {name: kinds.get(name, pa.string()) for name in rows.columns}
            pq.write_table(pa.schema(list(first.items())).empty_table(), target)
    finally:
        if writer is not None:
            writer.close()
    return None if first.items() >= kinds.items() else kinds
