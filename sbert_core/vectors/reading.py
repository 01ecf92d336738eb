"""Files of a vectors artifact -> unit vectors and the rows they belong to.

In:  part files, as the embed job writes them, or any with the same columns.
Out: float32 vectors of length one; a vector that has no direction is refused by its id.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.storage import Storage
from sbert_core.vectors.block import vectors_of
from sbert_core.vectors.dtypes import decoded

VECTOR = "vector"
DIVIDED_ROWS = 512  # at a time: quotients in float64 stay in the cache


def part_table(storage: Storage, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A part, or some columns of it."""
    with pq.ParquetFile(pa.BufferReader(storage.buffer(path))) as file:
        names = None if columns is None else list(columns)
        return file.read(names).combine_chunks()


def columns_schema(storage: Storage, path: str) -> pa.Schema:
    """Names and types of a part, from its footer."""
    with pq.ParquetFile(pa.PythonFile(storage.open(path), "r")) as file:
        return file.schema_arrow.remove_metadata()


def columns_of(storage: Storage, path: str) -> list[str]:
    """Everything but the vector."""
    with pq.ParquetFile(pa.BufferReader(storage.buffer(path))) as file:
        return [name for name in file.schema_arrow.names if name != VECTOR]


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
