"""One shard: an index of distinct vectors, and the rows that stand behind each.

    NAME.hnsw / .faiss   distinct vectors, a plain file of its library
    NAME.rows.arrow      every row, sorted by node and id: node, own, is_dead, then the columns of
                         the vectors artifact without the vector
    NAME.own.npy         vectors the index does not hold as they are: of rows that were collapsed
                         into another's, and of all rows if the index is lossy

In:  queries.
Out: rows with their own cosines.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sbert_core.neighbours.hits import NOTHING, Hits, nothing, products
from sbert_core.neighbours.index import VectorIndex

NODE, OWN, IS_DEAD = "node", "own", "is_dead"
# A lossy index is asked for this many times k; the best k by their own cosines remain.
LOSSY_FACTOR = 8
SCORED_ROWS = 1_000_000  # at a time


@dataclass(frozen=True, slots=True)
class Members:
    """Rows behind each node, those that may be found only."""

    rows: np.ndarray  # by node
    first: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, node: np.ndarray, is_wanted: np.ndarray, num_nodes: int) -> "Members":
        rows = np.flatnonzero(is_wanted)
        count = np.bincount(node[rows], minlength=num_nodes)
        return cls(rows, np.cumsum(count) - count, count)


class Shard:
    """An opened shard."""

    def __init__(self, index: VectorIndex, rows: pa.Table, own: np.ndarray) -> None:
        self.index = index
        self.rows = rows
        self._own = own
        self._node = rows[NODE].to_numpy()
        self._place = rows[OWN].to_numpy()
        self._is_live = ~rows[IS_DEAD].to_numpy(zero_copy_only=False)
        self._members = Members.of(self._node, self._is_live, index.num_nodes)
        self._has_own = np.zeros(index.num_nodes, bool)
        self._has_own[self._node[self._place >= 0]] = True
        dead = np.flatnonzero(self._members.count == 0)
        if len(dead):
            index.hide(dead)

    @classmethod
    def read(cls, index: VectorIndex, rows: Path, own: Path) -> "Shard":
        """Rows and own vectors are mapped, not read."""
        vectors = np.load(own, mmap_mode="r")
        return cls(index, read_rows(rows), vectors)

    @property
    def num_rows(self) -> int:
        return self.rows.num_rows

    @property
    def num_live(self) -> int:
        return len(self._members.rows)

    def search(
        self,
        queries: np.ndarray,
        k: int,
        effort: int,
        *,
        threads: int = 1,
        wanted: np.ndarray | None = None,
    ) -> Hits:
        """The k best rows of each query; fewer if there are fewer.

        wanted: which rows may be found; all by default.
        """
        depth = k * LOSSY_FACTOR if self.index.is_lossy else k
        if wanted is None:
            members = self._members
            found = self.index.search(queries, depth, effort, threads)
        else:
            members = Members.of(self._node, wanted & self._is_live, self.index.num_nodes)
            found = self.index.search_among(queries, depth, effort, members.count > 0)
        # Behind most nodes stands one row, with the vector the index holds: what it finds is that.
        is_plain = (members.count == 1) & ~self._has_own
        reached = found.rows != NOTHING
        special = np.flatnonzero((reached & ~is_plain[found.rows]).any(axis=1))
        if len(special) == len(queries):
            return self._expanded(queries, found, members, k)
        best = nothing(len(queries), k)
        rows = np.where(reached, _first_rows(members, found.rows), NOTHING)
        best.cos[:, : found.k], best.rows[:, : found.k] = found.cos[:, :k], rows[:, :k]
        if len(special):
            few = Hits(found.cos[special], found.rows[special])
            own = self._expanded(queries[special], few, members, k)
            best.cos[special], best.rows[special] = own.cos, own.rows
        return best

    def _expanded(self, queries: np.ndarray, found: Hits, members: Members, k: int) -> Hits:
        """Put rows in the place of nodes, each with its own cosine."""
        query, place = np.nonzero(found.rows != NOTHING)
        node = found.rows[query, place]
        # Rows that share the index's vector are equal: the first k by id stand for all.
        count = members.count[node]
        count = np.where(self._has_own[node], count, np.minimum(count, k))
        start = np.repeat(members.first[node], count)
        within = np.arange(len(start)) - np.repeat(np.cumsum(count) - count, count)
        rows = members.rows[start + within]
        query = np.repeat(query, count)
        cos = np.repeat(found.cos[found.rows != NOTHING], count)
        self._score(queries, query, rows, cos)
        order = np.lexsort((rows, -cos, query))
        query, rows, cos = query[order], rows[order], cos[order]
        first = np.searchsorted(query, np.arange(len(queries)))
        rank = np.arange(len(query)) - first[query]
        best = nothing(len(queries), k)
        kept = rank < k
        best.rows[query[kept], rank[kept]] = rows[kept]
        best.cos[query[kept], rank[kept]] = cos[kept]
        return best

    def _score(
        self, queries: np.ndarray, query: np.ndarray, rows: np.ndarray, cos: np.ndarray
    ) -> None:
        """Cosines of rows that have a vector of their own, in place. query: rising."""
        own = np.flatnonzero(self._place[rows] >= 0)
        if not len(own):
            return
        counts = np.bincount(query[own], minlength=len(queries))
        column = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
        width = int(counts.max())
        for first in range(0, len(queries), step := max(1, SCORED_ROWS // width)):
            some = np.flatnonzero((query[own] >= first) & (query[own] < first + step))
            ids = np.full((min(step, len(queries) - first), width), NOTHING)
            at = (query[own[some]] - first, column[some])
            ids[at] = self._place[rows[own[some]]]
            cos[own[some]] = products(queries[first : first + len(ids)], self._own, ids)[at]


def _first_rows(members: Members, nodes: np.ndarray) -> np.ndarray:
    """The first row behind each node; any row for a node that has none."""
    if not len(members.rows):
        return nodes
    return members.rows[np.minimum(members.first[nodes], len(members.rows) - 1)]


def read_rows(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def write_rows(rows: pa.Table, path: Path) -> None:
    """A file that can be mapped."""
    table = rows.combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
