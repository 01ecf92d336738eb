"""Read files of a vectors artifact: rows and unit vectors.

In:  part files, as the embed job writes them, or any with the same columns.
Out: float32 vectors of length one; a vector that has no direction is refused by its id.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.errors import TransientError
from sbert_core.storage import Storage, StoreError
from sbert_core.vectors.block import vector_matrix
from sbert_core.vectors.quantize import dequantize
from sbert_core.vectors.row_ranges import RowRange

VECTOR = "vector"
DIVIDED_ROWS = 512  # at a time: the float64 quotients stay in the cache
HASH_IN_NAME = re.compile(r"-([0-9a-f]{16})\.\w+$")


class BrokenPart(TransientError):
    """A file differs from what was published; restore it and retry. place, path: of the file."""

    def __init__(self, place: str, path: str, reason: str) -> None:
        super().__init__(place, path, reason)  # the arguments are what pickle keeps
        self.place, self.path, self.reason = place, path, reason

    def __str__(self) -> str:
        return f"{self.place}/{self.path} is {self.reason}; make the artifact again"


@contextmanager
def raise_broken_part(storage: Storage, path: str) -> Iterator[None]:
    """Raise BrokenPart for a missing or unreadable file of an artifact."""
    try:
        yield
    except FileNotFoundError:
        raise BrokenPart(storage.uri, path, "missing") from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, StoreError) or getattr(error, "errno", None) is not None:
            raise  # the system or the store failed; the file may be fine
        raise _broken(storage, path, str(error).strip().splitlines()[0].rstrip(".")) from error


def _broken(storage: Storage, path: str, reason: str) -> BrokenPart:
    return BrokenPart(storage.uri, path, f"corrupt: {reason}")


@contextmanager
def open_part(storage: Storage, path: str, sha256: str = "") -> Iterator[pq.ParquetFile]:
    """A Parquet file of an artifact; BrokenPart where it is missing or damaged.

    sha256: all or the first digits of the file's hash, to verify it; "" for no such check. Page
    checksums are verified in any case.
    """
    with raise_broken_part(storage, path):
        buffer = storage.buffer(path)
        _check_hash(storage, path, buffer, sha256)
        with pq.ParquetFile(pa.BufferReader(buffer), page_checksum_verification=True) as file:
            yield file


def check_part(storage: Storage, path: str, sha256: str) -> None:
    """BrokenPart if the file's sha256 is another one."""
    with raise_broken_part(storage, path):
        _check_hash(storage, path, storage.buffer(path), sha256)


def _check_hash(storage: Storage, path: str, data: pa.Buffer, sha256: str) -> None:
    found = hashlib.sha256(data).hexdigest() if sha256 else ""
    if not found.startswith(sha256):
        raise _broken(storage, path, f"its sha256 is {found[:12]}, not {sha256[:12]}")


def hash_in_name(path: str) -> str:
    """The first digits of a file's sha256 from its name; "" for a name without them."""
    found = HASH_IN_NAME.search(path)
    return found[1] if found else ""


def read_part(
    storage: Storage, path: str, columns: Sequence[str] | None = None, sha256: str = ""
) -> pa.Table:
    """A part, or some columns of it, as one chunk. sha256: as in `open_part`."""
    with open_part(storage, path, sha256) as file:
        names = _names(storage, path, file, columns)
        table = file.read(names)
        return (table if names is None else table.select(names)).combine_chunks()


def stream_part(
    storage: Storage, path: str, columns: Sequence[str] | None, num_rows: int
) -> Iterator[pa.RecordBatch]:
    """A part, or some columns of it, `num_rows` rows at a time."""
    with (
        raise_broken_part(storage, path),
        pq.ParquetFile(
            pa.PythonFile(storage.open(path), "r"), page_checksum_verification=True
        ) as file,
    ):
        found = 0
        names = _names(storage, path, file, columns)
        for batch in file.iter_batches(num_rows, columns=names):
            found += batch.num_rows
            yield batch if names is None else batch.select(names)
        if found != file.metadata.num_rows:  # the only sign of some broken pages
            reason = f"it ends at row {found} of {file.metadata.num_rows}"
            raise _broken(storage, path, reason)


def _names(
    storage: Storage, path: str, file: pq.ParquetFile, columns: Sequence[str] | None
) -> list[str] | None:
    """Columns to read and then to select: Arrow also reads a nested leaf of the same path."""
    for name in set(columns or ()) - set(file.schema_arrow.names):
        raise _broken(storage, path, f"it has no column {name!r}")
    return None if columns is None else list(dict.fromkeys(columns))


def read_row_range(
    storage: Storage, rows: RowRange, columns: Sequence[str] | None = None, sha256: str = ""
) -> pa.Table:
    """The rows of a range; BrokenPart if the file has another number of rows."""
    table = read_part(storage, rows.path, columns, sha256)
    if table.num_rows != rows.num_rows:
        reason = f"it has {table.num_rows} rows, the manifest says {rows.num_rows}"
        raise _broken(storage, rows.path, reason)
    return table if rows.rows is None else table.take(pa.array(rows.rows))


def read_part_schema(storage: Storage, path: str) -> pa.Schema:
    """Names and types of the columns of a part, from its footer."""
    with raise_broken_part(storage, path):
        with pq.ParquetFile(pa.PythonFile(storage.open(path), "r")) as file:
            return file.schema_arrow.remove_metadata()


def read_column_names(storage: Storage, path: str) -> list[str]:
    """Columns of a part except the vector."""
    return [name for name in read_part_schema(storage, path).names if name != VECTOR]


def decode_vectors(table: pa.Table, scale: float | None, path: str) -> np.ndarray:
    """Float32 vectors of a table with columns `id` and `vector`.

    ValueError, with the first id, for vectors that are zero or not finite. path: for its message.
    """
    return _with_norms(table, scale, path)[0]


def decode_unit_vectors(table: pa.Table, scale: float | None, path: str) -> np.ndarray:
    """`decode_vectors`, scaled to length one."""
    vectors, norms = _with_norms(table, scale, path)
    unit = np.empty(vectors.shape, np.float32)
    for first in range(0, len(vectors), DIVIDED_ROWS):
        some = slice(first, first + DIVIDED_ROWS)
        np.divide(vectors[some], norms[some, None], out=unit[some], casting="same_kind")
    return unit


def _with_norms(table: pa.Table, scale: float | None, path: str) -> tuple[np.ndarray, np.ndarray]:
    vectors = dequantize(vector_matrix(table[VECTOR]), scale)
    norms = np.sqrt(np.einsum("rd,rd->r", vectors, vectors, dtype=np.float64))
    bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if len(bad):
        kind = "zero" if norms[bad[0]] == 0 else "not finite"
        raise ValueError(
            f"{path}: the vector of id {table['id'][int(bad[0])].as_py()!r} is {kind} "
            f"({len(bad):,} such rows); it has no direction: remove those rows and repeat"
        )
    return vectors, norms
