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

from sbert_core.index.kinds import VectorIndex
from sbert_core.index.rounding import Nodes
from sbert_core.index.shard import Shard, ShardRows


class ShardBuilder:
    """A shard that grows."""

    def __init__(self, index: VectorIndex, dim: int) -> None:
        self.index = index
        self._nodes = Nodes()
        self._in_index: list[int] = []  # hash of the vector each node was inserted with
        self._own_place: dict[bytes, int] = {}
        self._own: list[np.ndarray] = []
        self._rows: list[pa.Table] = []
        self._dim = dim

    def add(self, rows: pa.Table, vectors: np.ndarray, part: str = "") -> None:
        """rows: columns of the vectors artifact without the vector. part: its file they are of."""
        nodes, new = self._nodes.numbered(vectors)
        self.index.add(vectors[new])
        own = np.full(len(nodes), -1, np.int64)
        for place in self._with_own(vectors, nodes, new):
            digest = hashlib.blake2b(vectors[place].tobytes(), digest_size=16).digest()
            own[place] = self._own_place.setdefault(digest, len(self._own))
            if own[place] == len(self._own):
                self._own.append(vectors[place])
        parts = pa.chunked_array([pa.array([part] * len(nodes), pa.string())])
        added = ShardRows(nodes, own, np.zeros(len(nodes), bool), parts, rows)
        self._rows.append(added.table())

    def _with_own(self, vectors: np.ndarray, nodes: np.ndarray, new: np.ndarray) -> Iterable[int]:
        """Places of rows whose vector the index does not hold as it is."""
        if self.index.is_lossy:
            return range(len(vectors))
        # Only rows of one node are compared, so 64 bits are plenty, at half the time of a digest.
        marks = [hash(row.tobytes()) for row in vectors]
        self._in_index += [marks[place] for place in new.tolist()]
        same = zip(marks, nodes.tolist(), strict=True)
        return [n for n, (mark, node) in enumerate(same) if mark != self._in_index[node]]

    def rows(self) -> ShardRows:
        """All rows so far by node, those of one node by id."""
        table = pa.concat_tables(self._rows).combine_chunks()
        rows = ShardRows.of(table)
        keys = pa.table({"node": rows.node, "id": rows.columns["id"]})
        order = pc.sort_indices(keys, [("node", "ascending"), ("id", "ascending")])
        return ShardRows.of(table.take(order))

    def own(self) -> np.ndarray:
        return np.stack(self._own) if self._own else np.empty((0, self._dim), np.float32)

    def shard(self) -> Shard:
        """What has been added so far, to search in."""
        return Shard(self.index, self.rows(), self.own())

    def write(self, index: Path, rows: Path, own: Path) -> None:
        self.index.write(index)
        self.rows().write(rows)
        with own.open("wb") as file:
            np.save(file, self.own())
