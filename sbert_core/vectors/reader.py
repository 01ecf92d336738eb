"""Files of a vectors artifact -> unit vectors and the rows they belong to.

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

from sbert_core.errors import Unsettled
from sbert_core.storage import Storage, StoreError
from sbert_core.vectors.block import vectors_of
from sbert_core.vectors.quantize import decoded
from sbert_core.vectors.row_ranges import Piece

VECTOR = "vector"
DIVIDED_ROWS = 512  # at a time: quotients in float64 stay in the cache
HASH_IN_NAME = re.compile(r"-([0-9a-f]{16})\.\w+$")


class BrokenPart(Unsettled):
    """A file of an artifact that is not what was published; mended, it may do."""


@contextmanager
def named_if_broken(storage: Storage, path: str) -> Iterator[None]:
    """What goes wrong with a file of an artifact, in one line that names it."""
    try:
        yield
    except FileNotFoundError:
        raise BrokenPart(f"{storage.uri}/{path} is missing; make the artifact again") from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, StoreError) or getattr(error, "errno", None) is not None:
            raise  # the system or the store failed; the file may be fine
        raise _broken(storage, path, str(error).strip().splitlines()[0].rstrip(".")) from error


def _broken(storage: Storage, path: str, reason: str) -> BrokenPart:
    return BrokenPart(f"{storage.uri}/{path} is corrupt: {reason}; make the artifact again")


@contextmanager
def part_file(storage: Storage, path: str, sha256: str = "") -> Iterator[pq.ParquetFile]:
    """A Parquet file of an artifact. sha256: its first digits at least, where it is to be checked.

    Pages are checked by sums of their own, as they are read.
    """
    with named_if_broken(storage, path):
        buffer = storage.buffer(path)
        _check_hash(storage, path, buffer, sha256)
        with pq.ParquetFile(pa.BufferReader(buffer), page_checksum_verification=True) as file:
            yield file


def check_part(storage: Storage, path: str, sha256: str) -> None:
    """Refuse a file that is not the one that was published."""
    with named_if_broken(storage, path):
        _check_hash(storage, path, storage.buffer(path), sha256)


def _check_hash(storage: Storage, path: str, data: pa.Buffer, sha256: str) -> None:
    found = hashlib.sha256(data).hexdigest() if sha256 else ""
    if not found.startswith(sha256):
        raise _broken(storage, path, f"its sha256 is {found[:12]}, not {sha256[:12]}")


def hash_in(path: str) -> str:
    """The first digits of a file's sha256, as its name has them; nothing if it has none."""
    found = HASH_IN_NAME.search(path)
    return found[1] if found else ""


def part_table(
    storage: Storage, path: str, columns: Sequence[str] | None = None, sha256: str = ""
) -> pa.Table:
    """A part, or some columns of it."""
    with part_file(storage, path, sha256) as file:
        names = _names(storage, path, file, columns)
        table = file.read(names)
        return (table if names is None else table.select(names)).combine_chunks()


def part_batches(
    storage: Storage, path: str, columns: Sequence[str] | None, num_rows: int
) -> Iterator[pa.RecordBatch]:
    """The same, some rows at a time."""
    with (
        named_if_broken(storage, path),
        pq.ParquetFile(
            pa.PythonFile(storage.open(path), "r"), page_checksum_verification=True
        ) as file,
    ):
        found = 0
        names = _names(storage, path, file, columns)
        for batch in file.iter_batches(num_rows, columns=names):
            found += batch.num_rows
            yield batch if names is None else batch.select(names)
        if found != file.metadata.num_rows:  # a broken page may end a file before its time
            reason = f"it ends at row {found} of {file.metadata.num_rows}"
            raise _broken(storage, path, reason)


def _names(
    storage: Storage, path: str, file: pq.ParquetFile, columns: Sequence[str] | None
) -> list[str] | None:
    """Columns to read and then to select: a name may also be the path to a leaf of another."""
    for name in set(columns or ()) - set(file.schema_arrow.names):
        raise _broken(storage, path, f"it has no column {name!r}")
    return None if columns is None else list(dict.fromkeys(columns))


def piece_table(
    storage: Storage, piece: Piece, columns: Sequence[str] | None = None, sha256: str = ""
) -> pa.Table:
    """The rows of a piece."""
    table = part_table(storage, piece.path, columns, sha256)
    if table.num_rows != piece.num_rows:
        reason = f"it has {table.num_rows} rows, the manifest says {piece.num_rows}"
        raise _broken(storage, piece.path, reason)
    return table if piece.rows is None else table.take(pa.array(piece.rows))


def columns_schema(storage: Storage, path: str) -> pa.Schema:
    """Names and types of a part, from its footer."""
    with named_if_broken(storage, path):
        with pq.ParquetFile(pa.PythonFile(storage.open(path), "r")) as file:
            return file.schema_arrow.remove_metadata()


def columns_of(storage: Storage, path: str) -> list[str]:
    """Everything but the vector."""
    return [name for name in columns_schema(storage, path).names if name != VECTOR]


def decoded_vectors(table: pa.Table, scale: float | None, path: str) -> np.ndarray:
    """The vectors of a table with columns `id` and `vector`, each with a direction."""
    return _with_norms(table, scale, path)[0]


def unit_vectors(table: pa.Table, scale: float | None, path: str) -> np.ndarray:
    """The same, of length one."""
    vectors, norms = _with_norms(table, scale, path)
    unit = np.empty(vectors.shape, np.float32)
    for first in range(0, len(vectors), DIVIDED_ROWS):
        some = slice(first, first + DIVIDED_ROWS)
        np.divide(vectors[some], norms[some, None], out=unit[some], casting="same_kind")
    return unit


def _with_norms(table: pa.Table, scale: float | None, path: str) -> tuple[np.ndarray, np.ndarray]:
    vectors = decoded(vectors_of(table[VECTOR]), scale)
    norms = np.sqrt(np.einsum("rd,rd->r", vectors, vectors, dtype=np.float64))
    bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if len(bad):
        kind = "zero" if norms[bad[0]] == 0 else "not finite"
        raise ValueError(
            f"{path}: the vector of id {table['id'][int(bad[0])].as_py()!r} is {kind} "
            f"({len(bad):,} such rows); it has no direction: remove those rows and repeat"
        )
    return vectors, norms
