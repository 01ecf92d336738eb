"""Rows of a corpus file -> Arrow tables and texts.

In:  a file, a row range, column names.
Out: exactly those rows, streamed; texts decoded one by one, so that a bad byte costs one row.

CSV and JSON lines have no row ranges: `sbert_core.corpus.formats` rewrites them once.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.corpus.columns import FIELD
from sbert_core.storage import Storage
from sbert_core.text import RefusedRow, invalid_reason

BATCH_ROWS = 8192
HASH_BYTES = 16

Text = str | bytes | RefusedRow | None


@dataclass(frozen=True, slots=True)
class Layout:
    """What a Parquet file says of itself."""

    num_rows: int
    schema: pa.Schema
    group_rows: tuple[int, ...]
    bytes_per_row: dict[str, float]


class CorruptFile(ValueError):
    """A file that cannot be read.

    root, path: of the storage and of the file in it. line: where, in a file of lines.
    """

    def __init__(self, root: str, path: str, reason: str, line: int | None = None) -> None:
        super().__init__(root, path, reason, line)  # pickled by these
        self.root, self.path, self.reason, self.line = root, path, reason, line

    def __str__(self) -> str:
        where = "" if self.line is None else f"line {self.line:,}: "
        return (
            f"{self.root}/{self.path} cannot be read: {where}{self.reason}; repair or remove it, "
            "or leave it out with --skip-corrupt"
        )


@contextmanager
def opened(storage: Storage, path: str) -> Iterator[pq.ParquetFile]:
    """The Parquet file; a broken one names itself, at once or where its pages prove broken."""
    try:
        source = pa.PythonFile(storage.open(path), "r")
        with pq.ParquetFile(source, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise reading_error(storage, path, error) from error


def reading_error(storage: Storage, path: str, error: Exception) -> Exception:
    """A corrupt file, unless the system itself failed: then the file may be fine."""
    if getattr(error, "errno", None) is not None or isinstance(error, pa.ArrowMemoryError):
        return error
    return CorruptFile(storage.uri, path, str(error).strip().splitlines()[0].rstrip("."))


def refuse_fewer(storage: Storage, path: str, found: int, announced: int) -> None:
    """A broken page may end a file before its time without any other sign."""
    if found < announced:
        raise CorruptFile(storage.uri, path, f"it ends at row {found} of {announced}")


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
                    raise CorruptFile(storage.uri, path, reason)
        if sum(group.num_rows for group in groups) != meta.num_rows:
            raise CorruptFile(storage.uri, path, "its row groups have other rows than it says")
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
        refuse_fewer(storage, path, row, min(end, int(ends[wanted[-1]])))


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


def without_bad_bytes(texts: list[Text], columns: dict[str, pa.Array]) -> list[Text]:
    """The texts; a row with a value that is no UTF-8 in one of the columns is refused.

    What is published must be read by others, and most readers refuse a file for one such value.
    """
    for name, column in columns.items():
        for row in invalid_rows(column):
            if invalid_reason(texts[row]) is None:
                texts[row] = RefusedRow(f"invalid UTF-8 in column {name!r}")
    return texts


def spelled_out(ids: pa.Array) -> pa.Array:
    """Ids; those that are no UTF-8 with their bad bytes as \\xff, to be found by."""
    if not (bad := invalid_rows(ids)):
        return ids
    values = ids.cast(pa.large_binary()).to_pylist()
    for row in bad:
        values[row] = values[row].decode(errors="backslashreplace").encode()
    return pa.array(values, pa.large_binary()).cast(ids.type)


def invalid_rows(column: pa.Array) -> list[int]:
    """Rows whose value, or a value in it, is no UTF-8."""
    if _is_sound(column):
        return []
    return [row for row in range(len(column)) if not _is_sound(column.take(pa.array([row])))]


def _is_sound(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def hashes_of(texts: Iterable[object]) -> tuple[np.ndarray, np.ndarray]:
    """Which texts are valid, and the content hash of each as two uint64; zeros where invalid."""
    digests = [
        b"\0" * HASH_BYTES if invalid_reason(text) else content_hash(str(text)) for text in texts
    ]
    hashes = np.frombuffer(b"".join(digests), dtype=">u8").reshape(-1, 2).astype(np.uint64)
    is_valid = (hashes[:, 0] | hashes[:, 1]) != 0
    return is_valid, hashes


def characters_of(texts: Iterable[object]) -> np.ndarray:
    """How many characters each text has; 0 where there is none."""
    return np.array([len(text) if isinstance(text, str) else 0 for text in texts], np.int64)


def content_hash(text: str) -> bytes:
    """Names a text by its UTF-8 bytes; 128 bits of a cryptographic hash, so chance is no risk."""
    return hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest()
