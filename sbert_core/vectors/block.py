"""Vectors of some documents of one unit, as they travel between passes.

In:  an encoding of texts and the rows they stand in.
Out: Block: stored vectors sorted by row, one or (chunks) several per document; why a document
     has none. Written as an Arrow file that can be mapped.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.storage import Storage

FACTS = ("row", "chunk", "start_char", "end_char", "num_tokens", "num_lost_tokens")


@dataclass(frozen=True, slots=True)
class Block:
    """`facts` holds int64 columns, one row per vector; `reasons` the documents without one."""

    facts: dict[str, np.ndarray]
    vectors: np.ndarray
    reasons: dict[int, str]

    def taken(self, index: np.ndarray) -> "Block":
        """Chosen vectors; all reasons."""
        facts = {name: values[index] for name, values in self.facts.items()}
        return Block(facts, self.vectors[index], self.reasons)

    def spans(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and last-but-one place of each document's vectors; equal if it has none."""
        own = self.facts["row"]
        return np.searchsorted(own, rows), np.searchsorted(own, rows, side="right")

    def only(self, rows: np.ndarray) -> "Block":
        """The documents in these rows."""
        lent = self.taken(np.flatnonzero(np.isin(self.facts["row"], rows)))
        kept = set(rows.tolist())
        return Block(lent.facts, lent.vectors, {r: w for r, w in self.reasons.items() if r in kept})


def write_block(storage: Storage, name: str, block: Block) -> None:
    """Vectors in one batch, reasons in the metadata-free second table behind it."""
    flat = pa.array(np.ascontiguousarray(block.vectors).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, block.vectors.shape[1])
    table = pa.table({**{n: pa.array(v) for n, v in block.facts.items()}, "vector": column})
    rows = pa.array(list(block.reasons), pa.int64())
    reasons = pa.table({"row": rows, "reason": pa.array(list(block.reasons.values()), pa.string())})
    sink = pa.BufferOutputStream()
    for part in (reasons, table):
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
    storage.put(name, sink.getvalue().to_pybytes())


def read_block(storage: Storage, name: str) -> Block:
    """The block, its vectors mapped where the storage can."""
    source = pa.BufferReader(storage.buffer(name))
    reasons = pa.ipc.open_stream(source).read_all().to_pydict()
    table = pa.ipc.open_stream(source).read_all().combine_chunks()
    return Block(
        facts={fact: table[fact].to_numpy() for fact in FACTS},
        vectors=vectors_of(table["vector"]),
        reasons=dict(zip(reasons["row"], reasons["reason"], strict=True)),
    )


def vectors_of(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """A fixed-size list column as a matrix, without a copy if it is in one piece."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # no chunk at all
        column = pa.array([], column.type)
    if not pa.types.is_fixed_size_list(column.type):
        raise ValueError(f"vectors are lists of one length, not {column.type}")
    dim = column.type.list_size
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
