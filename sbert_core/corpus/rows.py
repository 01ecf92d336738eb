"""Rows of a corpus file -> Arrow tables and texts.

In:  a file, a row range, column names.
Out: exactly those rows, streamed; texts decoded one by one, so that a bad byte costs one row.

CSV and JSON lines have no row ranges: `write_parquet_copy` rewrites them once.
"""

import hashlib
import io
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.storage import LocalStorage, Storage
from sbert_core.text import invalid_reason

log = logging.getLogger(__name__)

BATCH_ROWS = 8192
HASH_BYTES = 16
# Types follow from the first block, and a row must fit in one: the default of 1 MiB is too small.
BLOCK_BYTES = 64 * 2**20
FIELD = re.compile(r"\{([^{}]+)\}")
NULL_LINE = re.compile(rb"\n((?:\xef\xbb\xbf)?[ \t\r]*)null(?=[ \t\r]*(?:\n|\Z))")

Text = str | bytes | None


@dataclass(frozen=True, slots=True)
class Layout:
    """What a Parquet file says of itself."""

    num_rows: int
    schema: pa.Schema
    group_rows: tuple[int, ...]
    bytes_per_row: dict[str, float]


class CorruptFile(ValueError):
    """A file that cannot be read."""


@contextmanager
def opened(storage: Storage, path: str) -> Iterator[pq.ParquetFile]:
    """The Parquet file; a broken one names itself, at once or where its pages prove broken."""
    try:
        source = pa.PythonFile(storage.open(path), "r")
        with pq.ParquetFile(source, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise _reading_error(storage, path, error) from error


def _reading_error(storage: Storage, path: str, error: Exception) -> Exception:
    """A corrupt file, unless the system itself failed: then the file may be fine."""
    if getattr(error, "errno", None) is not None or isinstance(error, pa.ArrowMemoryError):
        return error
    return _corrupt(storage, path, str(error).strip().splitlines()[0].rstrip("."))


def _corrupt(storage: Storage, path: str, reason: str) -> CorruptFile:
    return CorruptFile(
        f"{storage.uri}/{path} cannot be read: {reason}; repair or remove it, or leave it out "
        "with --skip-corrupt"
    )


def _refuse_fewer(storage: Storage, path: str, found: int, announced: int) -> None:
    """A broken page may end a file before its time without any other sign."""
    if found < announced:
        raise _corrupt(storage, path, f"it ends at row {found} of {announced}")


def layout_of(storage: Storage, path: str) -> Layout:
    """Row counts, column types and sizes, from the footer alone."""
    with opened(storage, path) as file:
        meta = file.metadata
        sizes: dict[str, int] = {}
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        is_flat = [file.schema.column(i).max_repetition_level == 0 for i in range(meta.num_columns)]
        for group in groups:
            for i in range(group.num_columns):
                column = group.column(i)
                name = column.path_in_schema
                sizes[name] = sizes.get(name, 0) + column.total_uncompressed_size
                if is_flat[i] and column.num_values != group.num_rows:
                    reason = f"{column.num_values} values of {name} in {group.num_rows} rows"
                    raise _corrupt(storage, path, reason)
        if sum(group.num_rows for group in groups) != meta.num_rows:
            raise _corrupt(storage, path, "its row groups have other rows than it says")
        return Layout(
            num_rows=meta.num_rows,
            schema=file.schema_arrow,
            group_rows=tuple(group.num_rows for group in groups),
            bytes_per_row={name: size / max(1, meta.num_rows) for name, size in sizes.items()},
        )


def stream_rows(
    storage: Storage, path: str, first: int, num_rows: int, columns: Iterable[str]
) -> Iterator[pa.RecordBatch]:
    """Rows first..first+num_rows in order. Only row groups that hold some of them are decoded."""
    names = list(columns)
    with opened(storage, path) as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        ends = np.cumsum(sizes)
        wanted = np.flatnonzero((ends > first) & (ends - sizes < first + num_rows)).tolist()
        if not wanted:
            return
        row = int(ends[wanted[0]] - sizes[wanted[0]])
        end = first + num_rows
        batches = file.iter_batches(BATCH_ROWS, row_groups=wanted, columns=names, use_threads=False)
        for batch in batches:
            start, stop = max(0, first - row), min(batch.num_rows, end - row)
            if stop > start:
                yield batch.slice(start, stop - start)
            row += batch.num_rows
            if row >= end:
                return
        _refuse_fewer(storage, path, row, min(end, int(ends[wanted[-1]])))


def texts_of(columns: dict[str, pa.Array], template: str) -> list[Text]:
    """One text per row: a column, or a template of several.

    A null field of a template is left empty; a row of nothing but nulls has no text.
    """
    names = FIELD.findall(template)
    parts = {name: decoded(columns[name]) for name in names}
    if template == f"{{{names[0]}}}":
        return parts[names[0]]
    pieces = FIELD.split(template)  # literal, name, literal, name ... literal
    return [
        _filled(pieces, dict(zip(parts, row, strict=True)))
        for row in zip(*parts.values(), strict=True)
    ]


def _filled(pieces: list[str], row: dict[str, Text]) -> Text:
    for value in row.values():
        if isinstance(value, bytes):
            return value
    if all(value is None for value in row.values()):
        return None
    return "".join(str(row[piece] or "") if i % 2 else piece for i, piece in enumerate(pieces))


def is_text(kind: pa.DataType) -> bool:
    """Can values of this type be decoded as texts?"""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(test(plain) for test in (*tests, pa.types.is_large_binary, pa.types.is_null))


def decoded(column: pa.Array | pa.ChunkedArray) -> list[Text]:
    """Values of a text column; one that is no UTF-8 stays bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return column.to_pylist()
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    raw = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
    return [value if value is None else _text(value) for value in raw]


def _text(value: bytes) -> Text:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def hashes_of(texts: Iterable[object]) -> tuple[np.ndarray, np.ndarray]:
    """Which texts are valid, and the content hash of each as two uint64; zeros where invalid."""
    digests = [
        b"\0" * HASH_BYTES if invalid_reason(text) else content_hash(str(text)) for text in texts
    ]
    hashes = np.frombuffer(b"".join(digests), dtype=">u8").reshape(-1, 2).astype(np.uint64)
    is_valid = (hashes[:, 0] | hashes[:, 1]) != 0
    return is_valid, hashes


def content_hash(text: str) -> bytes:
    """Names a text by its UTF-8 bytes; 128 bits of a cryptographic hash, so chance is no risk."""
    return hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest()


def whole_table(
    storage: Storage, file: CorpusFile, text_columns: Iterable[str] | None = None
) -> pa.Table:
    """All rows of a file of any format. Text columns stay text; None: all of a CSV are.

    Columns that share a name are left out: nobody could say which one is meant.
    """
    if file.format is Format.PARQUET:
        with opened(storage, file.path) as parquet:
            table = parquet.read()
            _refuse_fewer(storage, file.path, table.num_rows, parquet.metadata.num_rows)
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
        raise _reading_error(storage, file.path, error) from error
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
