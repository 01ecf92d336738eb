"""Rows -> a shard.

In:  rows and their unit vectors, a part at a time.
Out: a Shard: each distinct vector in the index once, every row behind its node.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.index.base import VectorIndex
from sbert_core.index.hits import NO_ROW
from sbert_core.index.rounding import VectorDeduper
from sbert_core.index.shard import Shard
from sbert_core.index.shard_rows import ShardRows


class ShardBuilder:
    """Collects the rows of one shard and inserts their distinct vectors into an empty index."""

    def __init__(self, index: VectorIndex, dim: int) -> None:
        self.index = index
        self._deduper = VectorDeduper()
        self._node_marks: list[int] = []  # hash of the vector each node was inserted with
        self._exact_position: dict[bytes, int] = {}  # digest -> position in _exact_vectors
        self._exact_vectors: list[np.ndarray] = []
        self._rows: list[pa.Table] = []
        self._dim = dim

    def add(self, rows: pa.Table, vectors: np.ndarray, part: str = "") -> None:
        """Append rows and their vectors.

        rows: columns of the vectors artifact without the vector. part: first digits of the sha256
        of the file the rows come from.
        """
        nodes, new = self._deduper.assign_nodes(vectors)
        self.index.add(vectors[new])
        exact = np.full(len(nodes), NO_ROW, np.int64)
        for row in self._rows_to_keep_exact(vectors, nodes, new):
            digest = hashlib.blake2b(vectors[row].tobytes(), digest_size=16).digest()
            exact[row] = self._exact_position.setdefault(digest, len(self._exact_vectors))
            if exact[row] == len(self._exact_vectors):
                self._exact_vectors.append(vectors[row])
        parts = pa.chunked_array([pa.array([part] * len(nodes), pa.string())])
        added = ShardRows(nodes, exact, np.zeros(len(nodes), bool), parts, rows)
        self._rows.append(added.to_table())

    def _rows_to_keep_exact(
        self, vectors: np.ndarray, nodes: np.ndarray, new: np.ndarray
    ) -> Iterable[int]:
        """Rows whose vector the index does not hold bit for bit."""
        if self.index.is_lossy:
            return range(len(vectors))
        # Only rows of one node are compared, so 64 bits are plenty, at half the time of a digest.
        marks = [hash(row.tobytes()) for row in vectors]
        self._node_marks += [marks[row] for row in new.tolist()]
        pairs = zip(marks, nodes.tolist(), strict=True)
        return [row for row, (mark, node) in enumerate(pairs) if mark != self._node_marks[node]]

    def rows(self) -> ShardRows:
        """All rows so far by node, those of one node by id."""
        table = pa.concat_tables(self._rows).combine_chunks()
        rows = ShardRows.from_table(table)
        keys = pa.table({"node": rows.node, "id": rows.columns["id"]})
        order = pc.sort_indices(keys, [("node", "ascending"), ("id", "ascending")])
        return ShardRows.from_table(table.take(order))

    def exact_vectors(self) -> np.ndarray:
        """Vectors the index does not hold as they are, each once."""
        if not self._exact_vectors:
            return np.empty((0, self._dim), np.float32)
        return np.stack(self._exact_vectors)

    def to_shard(self) -> Shard:
        """A shard of what has been added so far, to search in."""
        return Shard(self.index, self.rows(), self.exact_vectors())

    def write(self, index: Path, rows: Path, exact: Path) -> None:
        """Write the shard's three files."""
        self.index.write(index)
        self.rows().write(rows)
        with exact.open("wb") as file:
            np.save(file, self.exact_vectors())
