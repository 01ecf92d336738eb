"""Vectors of some documents of one unit, as they are passed between tasks.

In:  an encoding of texts and the rows of these texts.
Out: VectorBlock: stored vectors sorted by row, one or (chunks) several per document, and why a
     document has none. Written as an Arrow file that can be memory-mapped.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.storage import Storage

BLOCK_COLUMNS = ("row", "chunk", "start_char", "end_char", "num_tokens", "num_lost_tokens")


@dataclass(frozen=True, slots=True)
class VectorBlock:
    """columns: int64 BLOCK_COLUMNS, one value per vector. reasons: by row of a document without."""

    columns: dict[str, np.ndarray]
    vectors: np.ndarray
    reasons: dict[int, str]

    def take(self, index: np.ndarray) -> "VectorBlock":
        """The vectors at `index`, and all reasons."""
        columns = {name: values[index] for name, values in self.columns.items()}
        return VectorBlock(columns, self.vectors[index], self.reasons)

    def spans(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of each document's vectors in the block; equal if it has none."""
        own = self.columns["row"]
        return np.searchsorted(own, rows), np.searchsorted(own, rows, side="right")

    def for_rows(self, rows: np.ndarray) -> "VectorBlock":
        """The vectors and reasons of the documents in these rows."""
        kept = self.take(np.flatnonzero(np.isin(self.columns["row"], rows)))
        wanted = set(rows.tolist())
        return VectorBlock(
            kept.columns, kept.vectors, {r: w for r, w in self.reasons.items() if r in wanted}
        )


def write_block(storage: Storage, name: str, block: VectorBlock) -> None:
    """Write two Arrow streams into one file: failure reasons, then vectors."""
    flat = pa.array(np.ascontiguousarray(block.vectors).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, block.vectors.shape[1])
    table = pa.table({**{n: pa.array(v) for n, v in block.columns.items()}, "vector": column})
    rows = pa.array(list(block.reasons), pa.int64())
    reasons = pa.table({"row": rows, "reason": pa.array(list(block.reasons.values()), pa.string())})
    sink = pa.BufferOutputStream()
    for part in (reasons, table):
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
    storage.put(name, sink.getvalue().to_pybytes())


def read_block(storage: Storage, name: str) -> VectorBlock:
    """Read a written block, its vectors memory-mapped where the storage can."""
    source = pa.BufferReader(storage.buffer(name))
    reasons = pa.ipc.open_stream(source).read_all().to_pydict()
    table = pa.ipc.open_stream(source).read_all().combine_chunks()
    return VectorBlock(
        columns={name: table[name].to_numpy() for name in BLOCK_COLUMNS},
        vectors=vector_matrix(table["vector"]),
        reasons=dict(zip(reasons["row"], reasons["reason"], strict=True)),
    )


def vector_matrix(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """A fixed-size list column as a matrix, without a copy if it has one chunk.

    ValueError for a column of another type.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # no chunk at all
        column = pa.array([], column.type)
    if not pa.types.is_fixed_size_list(column.type):
        raise ValueError(f"vectors are lists of one length, not {column.type}")
    dim = column.type.list_size
    flat: np.ndarray = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(-1, dim)
