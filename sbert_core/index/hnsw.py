"""HNSW graphs of hnswlib.

Files are the library's own: `hnswlib.Index("ip", dim).load_index(path)` opens them.
"""

from pathlib import Path

import hnswlib
import numpy as np

from sbert_core.index.base import SPARSE_SHARE, mask_without
from sbert_core.index.hits import NO_ROW, Hits, empty_hits, exact_search


class HnswIndex:
    """A VectorIndex around one hnswlib graph."""

    suffix = ".hnsw"
    is_lossy = False

    def __init__(self, graph: hnswlib.Index) -> None:
        self.graph = graph
        self._hidden = np.empty(0, np.int64)

    @classmethod
    def create(cls, dim: int, max_nodes: int, m: int, ef: int, seed: int) -> "HnswIndex":
        """An empty graph for up to `max_nodes` vectors. ef: of construction."""
        graph = hnswlib.Index("ip", dim)
        graph.init_index(max(1, max_nodes), M=m, ef_construction=ef, random_seed=seed)
        return cls(graph)

    @classmethod
    def read(cls, path: Path, dim: int) -> "HnswIndex":
        """Load a file of `write`; ValueError if hnswlib cannot."""
        graph = hnswlib.Index("ip", dim)
        try:
            graph.load_index(str(path))
        except RuntimeError as error:
            raise ValueError(f"{path} is no hnswlib index of this library: {error}") from None
        return cls(graph)

    @property
    def num_nodes(self) -> int:
        return int(self.graph.get_current_count())

    def add(self, vectors: np.ndarray) -> None:
        first = self.num_nodes
        # One thread: with more, the order of insertion and so the graph differ on every run.
        self.graph.add_items(vectors, np.arange(first, first + len(vectors)), num_threads=1)

    def search(self, queries: np.ndarray, k: int, effort: int, threads: int) -> Hits:
        k = min(k, self.num_nodes - len(self._hidden))
        if k < 1 or not len(queries):
            return empty_hits(len(queries), max(0, k))
        self.graph.set_ef(max(effort, k))
        try:
            nodes, distance = self.graph.knn_query(queries, k, num_threads=threads)
        except RuntimeError:  # a query reaches fewer than k nodes of the graph
            visible = mask_without(np.ones(self.num_nodes, bool), self._hidden)
            return self._exact_search(queries, k, visible)
        return Hits(1.0 - distance, nodes.astype(np.int64))

    def search_among(self, queries: np.ndarray, k: int, effort: int, allowed: np.ndarray) -> Hits:
        allowed = mask_without(allowed, self._hidden)
        num_allowed = int(allowed.sum())
        k = min(k, num_allowed)
        if k < 1:
            return empty_hits(len(queries), 0)
        if num_allowed < SPARSE_SHARE * self.num_nodes:
            return self._exact_search(queries, k, allowed)
        self.graph.set_ef(max(effort, k))
        try:
            nodes, distance = self.graph.knn_query(
                queries, k, num_threads=1, filter=lambda node: bool(allowed[node])
            )
        except RuntimeError:  # as in `search`
            return self._exact_search(queries, k, allowed)
        return Hits(1.0 - distance, nodes.astype(np.int64))

    def _exact_search(self, queries: np.ndarray, k: int, allowed: np.ndarray) -> Hits:
        """Compare with every allowed vector."""
        nodes = np.flatnonzero(allowed)
        vectors = np.asarray(self.graph.get_items(nodes), np.float32)
        hits = exact_search(queries, vectors, k)
        return Hits(hits.cos, np.where(hits.rows == NO_ROW, NO_ROW, nodes[hits.rows]))

    def hide(self, nodes: np.ndarray) -> None:
        for node in nodes.tolist():
            self.graph.mark_deleted(node)
        self._hidden = np.union1d(self._hidden, nodes)

    def write(self, path: Path) -> None:
        self.graph.save_index(str(path))
