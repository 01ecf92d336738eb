"""Files of any format: whole, or rewritten as Parquet.

In:  Parquet, CSV, TSV and JSON lines, packed or not.
Out: a table, or a Parquet copy that has row ranges to read; a broken file names itself.
"""

import io
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.rows import CorruptFile, opened, reading_error, refuse_fewer
from sbert_core.storage import LocalStorage, Storage

log = logging.getLogger(__name__)

# Types follow from the first block, and a row must fit in one: the default of 1 MiB is too small.
BLOCK_BYTES = 64 * 2**20
NULL_LINE = re.compile(rb"\n((?:\xef\xbb\xbf)?[ \t\r]*)null(?=[ \t\r]*(?:\n|\Z))")


def whole_table(
    storage: Storage, file: CorpusFile, text_columns: Iterable[str] | None = None
) -> pa.Table:
    """All rows of a file of any format. Text columns stay text; None: all of a CSV are.

    Columns that share a name are left out: nobody could say which one is meant.
    """
    if file.format is Format.PARQUET:
        with opened(storage, file.path) as parquet:
            table = parquet.read()
            refuse_fewer(storage, file.path, table.num_rows, parquet.metadata.num_rows)
            return _unambiguous(table, file)
    with tempfile.TemporaryDirectory(prefix="sbert-") as folder:
        copy = Path(folder) / "copy.parquet"
        write_parquet_copy(storage, file, text_columns, copy)
        with opened(LocalStorage(copy.parent), copy.name) as parquet:
            return _unambiguous(parquet.read(), file)


def _unambiguous(table: pa.Table, file: CorpusFile) -> pa.Table:
    names = table.column_names
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        log.warning("%s has several columns %r; none is read", file.path, twins[0])
    return table.select([n for n, name in enumerate(names) if name not in twins])


def write_parquet_copy(
    storage: Storage, file: CorpusFile, text_columns: Iterable[str] | None, target: Path
) -> None:
    """Rewrite a CSV or JSON lines file, batch by batch. Text columns stay text; None: all are."""
    reader = {Format.JSONL: _json_batches}.get(file.format, _csv_batches)
    writer: pq.ParquetWriter | None = None

    def stream() -> pa.NativeFile:
        return pa.input_stream(storage.open(file.path), compression=file.compression)

    try:
        if text_columns is None:
            with stream() as raw:
                first = next(iter(reader(raw, file, [])), None)
                text_columns = [] if first is None else first.schema.names
        with stream() as raw:
            for batch in reader(raw, file, list(text_columns)):
                writer = writer or pq.ParquetWriter(target, batch.schema, compression="zstd")
                writer.write_batch(batch)
    except (pa.ArrowException, OSError) as error:
        raise reading_error(storage, file.path, error) from error
    if writer is None:
        raise CorruptFile(
            f"{storage.uri}/{file.path} has no rows; remove it, or give it a header and rows"
        )
    writer.close()


def _csv_batches(
    raw: pa.NativeFile, file: CorpusFile, text_columns: list[str]
) -> Iterator[pa.RecordBatch]:
    # In a TSV a quote is a character like any other: public data sets hold unpaired ones, and to
    # take them for quoting would glue rows together.
    parsing = pa.csv.ParseOptions(newlines_in_values=True)
    if file.format is Format.TSV:
        parsing = pa.csv.ParseOptions(delimiter="\t", quote_char=False)
    yield from pa.csv.open_csv(
        raw,
        read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=parsing,
        convert_options=pa.csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(text_columns, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
        ),
    )


def _json_batches(
    raw: pa.NativeFile, file: CorpusFile, text_columns: list[str]
) -> Iterator[pa.RecordBatch]:
    del file, text_columns  # JSON says itself what is text
    source = pa.PythonFile(_EmptyForNull(raw), "r")
    yield from pa.json.open_json(source, read_options=pa.json.ReadOptions(block_size=BLOCK_BYTES))


class _EmptyForNull(io.RawIOBase):
    """Lines of JSON, with {} for null: pyarrow 26 dies of a block whose first line is null."""

    def __init__(self, raw: pa.NativeFile) -> None:
        self._raw = raw
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; whole lines, unless one is longer than that."""
        data = self._rest
        while len(data) < size and (more := self._raw.read(size - len(data))):
            data += more
        end = data.rfind(b"\n") + 1
        if len(data) < size or not end:  # the last of all, or a part of a very long line
            end = len(data)
        data, self._rest = data[:end], data[end:]
        if b"null" not in data:
            return data
        return NULL_LINE.sub(rb"\n\1{}", b"\n" + data)[1:]
