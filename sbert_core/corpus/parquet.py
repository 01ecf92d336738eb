"""Rows of a Parquet file as Arrow batches, and their texts.

In:  a file, a row range, column names.
Out: exactly those rows, streamed; texts decoded one by one, so that an invalid byte costs one row.

CSV and JSON lines have no row ranges: `sbert_core.corpus.formats` converts them once.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.corpus.columns import FIELD
from sbert_core.corpus.errors import CorruptFile
from sbert_core.storage import Storage
from sbert_core.text import RefusedRow, invalid_reason

BATCH_ROWS = 8192
HASH_BYTES = 16

Text = str | bytes | RefusedRow | None


@dataclass(frozen=True, slots=True)
class ParquetFooter:
    """Rows, columns and sizes of a Parquet file. bytes_per_row: uncompressed, by column path."""

    num_rows: int
    schema: pa.Schema
    group_rows: tuple[int, ...]
    bytes_per_row: dict[str, float]


@contextmanager
def open_parquet(storage: Storage, path: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file; CorruptFile for a broken footer now, or for a broken page as it is read."""
    try:
        source = pa.PythonFile(storage.open(path), "r")
        with pq.ParquetFile(source, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise to_read_error(storage, path, error) from error


def to_read_error(storage: Storage, path: str, error: Exception) -> Exception:
    """CorruptFile in the place of an error of Arrow; system errors stay, the file may be fine."""
    if getattr(error, "errno", None) is not None or isinstance(error, pa.ArrowMemoryError):
        return error
    return CorruptFile(storage.uri, path, str(error).strip().splitlines()[0].rstrip("."))


def check_row_count(storage: Storage, path: str, found: int, announced: int) -> None:
    """CorruptFile if fewer rows were read than announced: the only sign of some broken pages."""
    if found < announced:
        raise CorruptFile(storage.uri, path, f"it ends at row {found} of {announced}")


def read_footer(storage: Storage, path: str) -> ParquetFooter:
    """Read a file's footer; CorruptFile where its counts contradict each other."""
    with open_parquet(storage, path) as file:
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
                    raise CorruptFile(storage.uri, path, reason)
        if sum(group.num_rows for group in groups) != meta.num_rows:
            raise CorruptFile(storage.uri, path, "its row-group counts differ from the footer")
        return ParquetFooter(
            num_rows=meta.num_rows,
            schema=file.schema_arrow,
            group_rows=tuple(group.num_rows for group in groups),
            bytes_per_row={name: size / max(1, meta.num_rows) for name, size in sizes.items()},
        )


def stream_rows(
    storage: Storage, path: str, first: int, num_rows: int, columns: Iterable[str]
) -> Iterator[pa.RecordBatch]:
    """Rows first..first+num_rows in order, BATCH_ROWS at a time; other row groups are skipped."""
    names = list(columns)
    with open_parquet(storage, path) as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        ends = np.cumsum(sizes)
        wanted = np.flatnonzero((ends > first) & (ends - sizes < first + num_rows)).tolist()
        if not wanted:
            check_row_count(storage, path, int(sum(sizes)), first + num_rows)
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
        check_row_count(storage, path, row, min(end, int(ends[wanted[-1]])))


def render_texts(columns: dict[str, pa.Array], template: str) -> list[Text]:
    """One text per row. template: text with columns in braces, `{title}: {body}`.

    A null field is left empty; a row with nulls alone has the text None.
    """
    names = FIELD.findall(template)
    parts = {name: decode_texts(columns[name]) for name in names}
    if template == f"{{{names[0]}}}":
        return parts[names[0]]
    pieces = FIELD.split(template)  # literal, name, literal, name ... literal
    return [
        _fill_template(pieces, dict(zip(parts, row, strict=True)))
        for row in zip(*parts.values(), strict=True)
    ]


def _fill_template(pieces: list[str], row: dict[str, Text]) -> Text:
    for value in row.values():
        if isinstance(value, bytes):
            return value
    if all(value is None for value in row.values()):
        return None
    return "".join(str(row[piece] or "") if i % 2 else piece for i, piece in enumerate(pieces))


def is_text_type(kind: pa.DataType) -> bool:
    """Whether values of this type can be decoded as texts."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(test(plain) for test in (*tests, pa.types.is_large_binary, pa.types.is_null))


def decode_texts(column: pa.Array | pa.ChunkedArray) -> list[Text]:
    """Values of a text column; a value that is not UTF-8 stays bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return [None] * len(column)
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    raw = column.cast(pa.large_binary() if large else pa.binary()).to_pylist()
    return [value if value is None else _decode(value) for value in raw]


def _decode(value: bytes) -> Text:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def reject_invalid_utf8(texts: list[Text], columns: dict[str, pa.Array]) -> list[Text]:
    """The texts, with a RefusedRow where one of the columns is not UTF-8.

    These columns are published, and most readers refuse a whole file for one such value.
    """
    for name, column in columns.items():
        for row in invalid_utf8_rows(column):
            if invalid_reason(texts[row]) is None:
                texts[row] = RefusedRow(f"invalid UTF-8 in column {name!r}")
    return texts


def escape_invalid_utf8(ids: pa.Array) -> pa.Array:
    r"""Ids with invalid bytes as \xff, so that a refused row can still be found by its id."""
    if not (bad := invalid_utf8_rows(ids)):
        return ids
    values = ids.cast(pa.large_binary()).to_pylist()
    for row in bad:
        values[row] = values[row].decode(errors="backslashreplace").encode()
    return pa.array(values, pa.large_binary()).cast(ids.type)


def invalid_utf8_rows(column: pa.Array) -> list[int]:
    """Rows whose value, or a value nested in it, is not UTF-8."""
    if _is_valid_utf8(column):
        return []
    return [row for row in range(len(column)) if not _is_valid_utf8(column.take(pa.array([row])))]


def _is_valid_utf8(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def hash_texts(texts: Iterable[object]) -> tuple[np.ndarray, np.ndarray]:
    """Which texts are valid, and content hashes as (n, 2) uint64, zeros where invalid."""
    digests = [
        b"\0" * HASH_BYTES if invalid_reason(text) else content_hash(str(text)) for text in texts
    ]
    hashes = np.frombuffer(b"".join(digests), dtype=">u8").reshape(-1, 2).astype(np.uint64)
    is_valid = (hashes[:, 0] | hashes[:, 1]) != 0
    return is_valid, hashes


def count_chars(texts: Iterable[object]) -> np.ndarray:
    """Characters of each text; 0 for values other than strings."""
    return np.array([len(text) if isinstance(text, str) else 0 for text in texts], np.int64)


def content_hash(text: str) -> bytes:
    """BLAKE2b of the UTF-8 bytes, 128 bits: equal hashes by chance can be ignored."""
    return hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest()
