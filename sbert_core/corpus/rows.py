"""Rows of a corpus file -> Arrow tables and texts.

In:  a file, a row range, column names.
Out: exactly those rows, streamed; texts decoded one by one, so that a bad byte costs one row.

CSV and JSON lines have no row ranges: `write_parquet_copy` rewrites them once.
"""

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.storage import Storage
from sbert_core.text import invalid_reason

BATCH_ROWS = 8192
HASH_BYTES = 16
# Types follow from the first block, and a row must fit in one: the default of 1 MiB is too small.
BLOCK_BYTES = 64 * 2**20
FIELD = re.compile(r"\{([^{}]+)\}")

Text = str | bytes | None


@dataclass(frozen=True, slots=True)
class Layout:
    """What a Parquet file says of itself."""

    num_rows: int
    schema: pa.Schema
    group_rows: tuple[int, ...]
    bytes_per_row: dict[str, float]


def opened(storage: Storage, path: str) -> pq.ParquetFile:
    """The Parquet file; a broken one names itself."""
    try:
        return pq.ParquetFile(pa.PythonFile(storage.open(path), "r"), pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise _reading_error(storage, path, error) from error


class CorruptFile(ValueError):
    """A file that cannot be read."""


def _reading_error(storage: Storage, path: str, error: Exception) -> Exception:
    """A corrupt file, unless the system itself failed: then the file may be fine."""
    if getattr(error, "errno", None) is not None or isinstance(error, pa.ArrowMemoryError):
        return error
    reason = str(error).strip().splitlines()[0].rstrip(".")
    return CorruptFile(
        f"{storage.uri}/{path} cannot be read: {reason}; repair or remove it, or leave it out "
        "with --skip-corrupt"
    )


def layout_of(storage: Storage, path: str) -> Layout:
    """Row counts, column types and sizes, from the footer alone."""
    with opened(storage, path) as file:
        meta = file.metadata
        sizes: dict[str, int] = {}
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        for group in groups:
            for column in (group.column(i) for i in range(group.num_columns)):
                name = column.path_in_schema
                sizes[name] = sizes.get(name, 0) + column.total_uncompressed_size
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
        try:
            batches = file.iter_batches(
                BATCH_ROWS, row_groups=wanted, columns=names, use_threads=False
            )
            for batch in batches:
                start, stop = max(0, first - row), min(batch.num_rows, end - row)
                if stop > start:
                    yield batch.slice(start, stop - start)
                row += batch.num_rows
                if row >= end:
                    return
        except (pa.ArrowException, OSError) as error:
            raise _reading_error(storage, path, error) from error


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
    """All rows of a file of any format. Text columns stay text; None: all of a CSV are."""
    if file.format is Format.PARQUET:
        with opened(storage, file.path) as parquet:
            return parquet.read()
    with tempfile.TemporaryDirectory(prefix="sbert-") as folder:
        copy = Path(folder) / "copy.parquet"
        write_parquet_copy(storage, file, text_columns, copy)
        return pq.read_table(copy)


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
    yield from pa.json.open_json(raw, read_options=pa.json.ReadOptions(block_size=BLOCK_BYTES))
