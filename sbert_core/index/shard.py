"""One shard: an index of distinct vectors, and the rows that stand behind each.

    NAME.hnsw / .faiss   distinct vectors, a plain file of its library
    NAME.rows.arrow      every row, sorted by node and id (shard_rows.py)
    NAME.own.npy         exact vectors: those the index does not hold as they are, of rows that
                         share another row's node, and of all rows if the index is lossy

In:  queries.
Out: rows with the cosines of their exact vectors.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_core.index.base import VectorIndex
from sbert_core.index.hits import NO_ROW, Hits, empty_hits, inner_products, merge_hits
from sbert_core.index.shard_rows import ShardRows

# A lossy index is searched for this many times k; the best k by exact cosine remain.
LOSSY_FACTOR = 8
# Rows behind one node are alike, so of a lossy index twice k nodes are enough to expand.
NEAR_FACTOR = 2
SCORED_ROWS = 1_000_000  # exact cosines computed at a time


@dataclass(frozen=True, slots=True)
class NodeRows:
    """Rows behind each node that a search may return: rows[first[n] : first[n] + count[n]]."""

    rows: np.ndarray  # by node
    first: np.ndarray
    count: np.ndarray

    @classmethod
    def group(cls, node: np.ndarray, mask: np.ndarray, num_nodes: int) -> "NodeRows":
        """Group the rows of a mask. node: of each row, rising."""
        rows = np.flatnonzero(mask)
        count = np.bincount(node[rows], minlength=num_nodes)
        return cls(rows, np.cumsum(count) - count, count)


class Shard:
    """A shard opened for search. rows: the columns of the vectors artifact, by row number."""

    def __init__(self, index: VectorIndex, rows: ShardRows, exact_vectors: np.ndarray) -> None:
        self.index = index
        self.rows = rows.columns
        self._exact_vectors = exact_vectors
        self._node = rows.node
        self._exact = rows.exact
        self._is_live = ~rows.is_dead
        self._node_rows = NodeRows.group(self._node, self._is_live, index.num_nodes)
        self._has_exact = np.zeros(index.num_nodes, bool)
        self._has_exact[self._node[self._exact >= 0]] = True
        dead = np.flatnonzero(self._node_rows.count == 0)
        if len(dead):
            index.hide(dead)

    @classmethod
    def read(cls, index: VectorIndex, rows: Path, exact: Path) -> "Shard":
        """Open a shard; the files of rows and exact vectors are mapped, not read."""
        return cls(index, ShardRows.read(rows), np.load(exact, mmap_mode="r"))

    @property
    def num_rows(self) -> int:
        """Rows of the shard, dead ones included."""
        return int(self.rows.num_rows)

    @property
    def num_live(self) -> int:
        """Rows that are not dead."""
        return len(self._node_rows.rows)

    def search(
        self,
        queries: np.ndarray,
        k: int,
        effort: int,
        *,
        threads: int = 1,
        mask: np.ndarray | None = None,
    ) -> Hits:
        """The k best live rows of each query; places are empty if there are fewer.

        mask: which rows may be found; all by default.
        """
        # The last place only shows ties with what follows, so it is not multiplied.
        depth = (k - 1) * LOSSY_FACTOR + 1 if self.index.is_lossy else k
        if mask is None:
            node_rows = self._node_rows
            found = self.index.search(queries, depth, effort, threads)
        else:
            node_rows = NodeRows.group(self._node, mask & self._is_live, self.index.num_nodes)
            found = self.index.search_among(queries, depth, effort, node_rows.count > 0)
        is_hit = found.rows != NO_ROW
        has_groups = (is_hit & (node_rows.count[found.rows] != 1)).any(axis=1)
        # Behind most nodes there is one row; queries that found only such nodes take a short way.
        unique, grouped = np.flatnonzero(~has_groups), np.flatnonzero(has_groups)
        best = empty_hits(len(queries), k)
        for some, expand in ((unique, self._expand_unique), (grouped, self._expand_grouped)):
            if len(some):
                nodes = Hits(found.cos[some], found.rows[some])
                hits = expand(queries[some], nodes, node_rows, k)
                best.cos[some, : hits.k], best.rows[some, : hits.k] = hits.cos, hits.rows
        return best

    def _expand_unique(self, queries: np.ndarray, found: Hits, node_rows: NodeRows, k: int) -> Hits:
        """Replace each node by the one row behind it, with the row's exact cosine."""
        cos, rows = self._score_first_rows(queries, found, node_rows)
        if cos is found.cos:
            return Hits(cos[:, :k], rows[:, :k])
        if found.k > k:
            top = np.argpartition(-cos, k - 1, axis=1)[:, :k]
            cos, rows = np.take_along_axis(cos, top, 1), np.take_along_axis(rows, top, 1)
        return merge_hits([Hits(cos, rows)], k)

    def _score_first_rows(
        self, queries: np.ndarray, found: Hits, node_rows: NodeRows
    ) -> tuple[np.ndarray, np.ndarray]:
        """Exact cosines of the first row behind each node, and those rows."""
        rows = _first_rows(node_rows, found.rows)
        exact = np.where(rows == NO_ROW, NO_ROW, self._exact[rows])
        has_exact = exact != NO_ROW
        if not has_exact.any():
            return found.cos, rows
        products = inner_products(queries, self._exact_vectors, exact)
        return np.where(has_exact, products, found.cos), rows

    def _expand_grouped(
        self, queries: np.ndarray, found: Hits, node_rows: NodeRows, k: int
    ) -> Hits:
        """Replace nodes by all rows behind them.

        Of a lossy index only the 2k nodes whose first rows have the best exact cosines.
        """
        if found.k > NEAR_FACTOR * k:
            cos, _ = self._score_first_rows(queries, found, node_rows)
            top = np.argpartition(-cos, NEAR_FACTOR * k - 1, axis=1)[:, : NEAR_FACTOR * k]
            found = Hits(
                np.take_along_axis(found.cos, top, 1), np.take_along_axis(found.rows, top, 1)
            )
        return self._expand_nodes(queries, found, node_rows, k)

    def _expand_nodes(self, queries: np.ndarray, found: Hits, node_rows: NodeRows, k: int) -> Hits:
        """The k best of the rows behind all nodes found, each with its exact cosine."""
        query, place = np.nonzero(found.rows != NO_ROW)
        node = found.rows[query, place]
        # Rows that share the index's vector are equal: the first k by id stand for all.
        count = node_rows.count[node]
        count = np.where(self._has_exact[node], count, np.minimum(count, k))
        start = np.repeat(node_rows.first[node], count)
        within = np.arange(len(start)) - np.repeat(np.cumsum(count) - count, count)
        rows = node_rows.rows[start + within]
        query = np.repeat(query, count)
        cos = np.repeat(found.cos[found.rows != NO_ROW], count)
        self._score_rows(queries, query, rows, cos)
        order = _best_first(query, cos, rows, k)
        query, rows, cos = query[order], rows[order], cos[order]
        first = np.searchsorted(query, np.arange(len(queries)))
        rank = np.arange(len(query)) - first[query]
        best = empty_hits(len(queries), k)
        kept = rank < k
        best.rows[query[kept], rank[kept]] = rows[kept]
        best.cos[query[kept], rank[kept]] = cos[kept]
        return best

    def _score_rows(
        self, queries: np.ndarray, query: np.ndarray, rows: np.ndarray, cos: np.ndarray
    ) -> None:
        """Overwrite `cos` in place for rows that have an exact vector.

        query, rows, cos: one entry per hit. query: number of the query, rising.
        """
        scored = np.flatnonzero(self._exact[rows] >= 0)
        if not len(scored):
            return
        counts = np.bincount(query[scored], minlength=len(queries))
        column = np.arange(len(scored)) - np.repeat(np.cumsum(counts) - counts, counts)
        width = int(counts.max())
        for first in range(0, len(queries), step := max(1, SCORED_ROWS // width)):
            some = np.flatnonzero((query[scored] >= first) & (query[scored] < first + step))
            exact = np.full((min(step, len(queries) - first), width), NO_ROW)
            at = (query[scored[some]] - first, column[some])
            exact[at] = self._exact[rows[scored[some]]]
            block = queries[first : first + len(exact)]
            cos[scored[some]] = inner_products(block, self._exact_vectors, exact)[at]


def _first_rows(node_rows: NodeRows, nodes: np.ndarray) -> np.ndarray:
    """The first row behind each node; NO_ROW for an empty place."""
    if not len(node_rows.rows):
        return np.full_like(nodes, NO_ROW)
    place = np.minimum(node_rows.first[nodes], len(node_rows.rows) - 1)
    return np.where(nodes == NO_ROW, NO_ROW, node_rows.rows[place])


def _best_first(query: np.ndarray, cos: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """Order of the k best hits of each query and of those tied with the last: by cosine, then row.

    Hits are first sorted by one number, 4 * query - cos, four times as fast as by three keys.
    query: rising.
    """
    key = 4.0 * query - cos
    order = np.argsort(key)
    count = np.bincount(query)
    last = np.cumsum(count) - count + np.minimum(count, k) - 1
    few = order[key[order] <= key[order[last]][query]]
    best: np.ndarray = few[np.lexsort((rows[few], key[few]))]
    return best
