"""Indexes of two libraries behind one interface.

In:  unit vectors, numbered in the order in which they are added: nodes.
Out: for each query the nodes of highest cosine. `effort` is what raises recall: ef of a graph, the
     number of cells visited of an inverted file; where there is nothing to raise it is ignored.

Files are the libraries' own: `hnswlib.Index("ip", dim).load_index(path)`, `faiss.read_index(path)`.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import faiss
import hnswlib
import numpy as np

from sbert_core.index.hits import NOTHING, Hits, best_of, exact_hits, nothing

untyped: Any = faiss  # its stubs do not know the arguments its Python layer takes
# Below this share of allowed nodes a graph search runs into dead ends; all of them are looked at.
SPARSE_SHARE = 0.1
EXACT_FAISS = (faiss.IndexFlat, faiss.IndexIVFFlat, faiss.IndexHNSWFlat)
ROWS_PER_CELL = 39  # what FAISS asks for


class VectorIndex(Protocol):
    """What a shard needs of an index.

    is_lossy: the cosines it returns are not quite those of the vectors it was given.
    """

    suffix: str
    is_lossy: bool

    @property
    def num_nodes(self) -> int: ...

    def add(self, vectors: np.ndarray) -> None: ...

    def search(self, queries: np.ndarray, k: int, effort: int, threads: int) -> Hits: ...

    def search_among(
        self, queries: np.ndarray, k: int, effort: int, allowed: np.ndarray
    ) -> Hits: ...

    def hide(self, nodes: np.ndarray) -> None: ...

    def write(self, path: Path) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKind:
    """How indexes are made. factory: a FAISS factory string, or None for hnswlib."""

    factory: str | None = None
    m: int = 16
    ef_construction: int = 200

    @classmethod
    def named(cls, word: str, m: int, ef_construction: int) -> "IndexKind":
        if word == "hnsw":
            return cls(m=m, ef_construction=ef_construction)
        if word.startswith("faiss:") and "IDMap" not in word and word != "faiss:":
            return cls(factory=word.removeprefix("faiss:"))
        raise ValueError(
            f'kind {word!r} is unknown; give hnsw, or faiss: and a factory string, as in "faiss:'
            'IVF4096,PQ48" (without IDMap: ids are kept beside the index)'
        )

    @property
    def num_cells(self) -> int | None:
        """Cells of an inverted file."""
        found = re.search(r"IVF(\d+)", self.factory or "")
        return int(found[1]) if found else None

    def fitting(self, num_rows: int) -> "IndexKind":
        """The same with no more cells than can be trained on that many rows."""
        cells = self.num_cells
        if cells is None or cells <= num_rows:
            return self
        fewer = max(1, num_rows // ROWS_PER_CELL)
        assert self.factory is not None
        return IndexKind(factory=self.factory.replace(f"IVF{cells}", f"IVF{fewer}"))

    @property
    def effort_name(self) -> str | None:
        if self.factory is None:
            return "ef"
        if self.num_cells is not None:
            return "nprobe"
        return "efSearch" if "HNSW" in self.factory else None

    def efforts(self) -> list[int]:
        """What may be tried, from the default upwards."""
        if self.effort_name is None:
            return [1]
        if (cells := self.num_cells) is not None:
            ladder = [max(1, cells // share) for share in (32, 16, 8, 4, 2, 1)]
            return sorted({min(cells, max(8, effort)) for effort in ladder})
        return [128, 256, 512, 1024, 2048]

    def untrained(self, dim: int) -> faiss.Index:
        assert self.factory is not None
        try:
            return faiss.index_factory(dim, self.factory, faiss.METRIC_INNER_PRODUCT)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0].rpartition("Error: ")[2]
            raise ValueError(
                f"kind faiss:{self.factory} cannot be made for {dim} dimensions ({reason}); see "
                "FAISS's list of factory strings"
            ) from None

    def trained(self, sample: np.ndarray) -> faiss.Index:
        """An empty index that knows its cells and codes; one thread, so that it repeats."""
        index = self.untrained(sample.shape[1])
        if not index.is_trained:
            skip_polysemous(index)
            try:
                with faiss_threads(1):
                    index.train(sample)
            except RuntimeError as error:
                raise ValueError(
                    f"kind faiss:{self.factory} cannot be trained on {len(sample):,} vectors "
                    f"({str(error).strip().splitlines()[-1]}); use a smaller kind or more rows"
                ) from None
        return index

    def empty(self, dim: int, max_nodes: int, seed: int, trained: Path | None) -> VectorIndex:
        """trained: file of the empty FAISS index all shards begin with."""
        if self.factory is None:
            return HnswIndex.empty(dim, max_nodes, self.m, self.ef_construction, seed)
        assert trained is not None
        return FaissIndex(faiss.read_index(str(trained)), self.effort_name)

    def read(self, path: Path, dim: int) -> VectorIndex:
        if self.factory is None:
            return HnswIndex.read(path, dim)
        return FaissIndex(_read_faiss(path), self.effort_name)


class HnswIndex:
    """A graph of hnswlib."""

    suffix = ".hnsw"
    is_lossy = False

    def __init__(self, graph: hnswlib.Index) -> None:
        self.graph = graph
        self._hidden = np.empty(0, np.int64)

    @classmethod
    def empty(cls, dim: int, max_nodes: int, m: int, ef: int, seed: int) -> "HnswIndex":
        graph = hnswlib.Index("ip", dim)
        graph.init_index(max(1, max_nodes), M=m, ef_construction=ef, random_seed=seed)
        return cls(graph)

    @classmethod
    def read(cls, path: Path, dim: int) -> "HnswIndex":
        graph = hnswlib.Index("ip", dim)
        try:
            graph.load_index(str(path))
        except RuntimeError as error:
            raise ValueError(f"{path} is no hnswlib index of this library: {error}") from None
        return cls(graph)

    @property
    def num_nodes(self) -> int:
        return self.graph.get_current_count()

    def add(self, vectors: np.ndarray) -> None:
        first = self.num_nodes
        # More threads would give another graph every time.
        self.graph.add_items(vectors, np.arange(first, first + len(vectors)), num_threads=1)

    def search(self, queries: np.ndarray, k: int, effort: int, threads: int) -> Hits:
        k = min(k, self.num_nodes - len(self._hidden))
        if k < 1 or not len(queries):
            return nothing(len(queries), max(0, k))
        self.graph.set_ef(max(effort, k))
        try:
            nodes, distance = self.graph.knn_query(queries, k, num_threads=threads)
        except RuntimeError:  # some query reaches fewer than k nodes of the graph
            return self._exact(queries, k, _without(np.ones(self.num_nodes, bool), self._hidden))
        return Hits(1.0 - distance, nodes.astype(np.int64))

    def search_among(self, queries: np.ndarray, k: int, effort: int, allowed: np.ndarray) -> Hits:
        allowed = _without(allowed, self._hidden)
        num_allowed = int(allowed.sum())
        k = min(k, num_allowed)
        if k < 1:
            return nothing(len(queries), 0)
        if num_allowed < SPARSE_SHARE * self.num_nodes:
            return self._exact(queries, k, allowed)
        self.graph.set_ef(max(effort, k))
        try:
            nodes, distance = self.graph.knn_query(
                queries, k, num_threads=1, filter=lambda node: bool(allowed[node])
            )
        except RuntimeError:
            return self._exact(queries, k, allowed)
        return Hits(1.0 - distance, nodes.astype(np.int64))

    def _exact(self, queries: np.ndarray, k: int, allowed: np.ndarray) -> Hits:
        nodes = np.flatnonzero(allowed)
        vectors = np.asarray(self.graph.get_items(nodes), np.float32)
        found = exact_hits(queries, vectors, k)
        return Hits(found.cos, np.where(found.rows == NOTHING, NOTHING, nodes[found.rows]))

    def hide(self, nodes: np.ndarray) -> None:
        for node in nodes.tolist():
            self.graph.mark_deleted(node)
        self._hidden = np.union1d(self._hidden, nodes)

    def write(self, path: Path) -> None:
        self.graph.save_index(str(path))


class FaissIndex:
    """Any index of FAISS's factory."""

    suffix = ".faiss"

    def __init__(self, index: faiss.Index, effort_name: str | None) -> None:
        self.index = index
        self.effort_name = effort_name
        self.is_lossy = not isinstance(faiss.downcast_index(index), EXACT_FAISS)
        self._hidden = np.empty(0, np.int64)

    @property
    def num_nodes(self) -> int:
        return self.index.ntotal

    def add(self, vectors: np.ndarray) -> None:
        with faiss_threads(1):
            self.index.add(vectors)

    def search(self, queries: np.ndarray, k: int, effort: int, threads: int) -> Hits:
        if len(self._hidden):
            return self.search_among(queries, k, effort, np.ones(self.num_nodes, bool))
        k = min(k, self.num_nodes)
        if k < 1 or not len(queries):
            return nothing(len(queries), max(0, k))
        self._set_effort(effort)
        with faiss_threads(threads):
            cos, nodes = self.index.search(queries, k)
        return _hits(cos, nodes)

    def search_among(self, queries: np.ndarray, k: int, effort: int, allowed: np.ndarray) -> Hits:
        allowed = _without(allowed, self._hidden)
        num_allowed = int(allowed.sum())
        k = min(k, num_allowed)
        if k < 1 or not len(queries):
            return nothing(len(queries), max(0, k))
        bits = np.packbits(allowed, bitorder="little")
        chosen = untyped.IDSelectorBitmap(bits)
        if num_allowed < SPARSE_SHARE * self.num_nodes:
            effort = max(effort, self.num_nodes)
        parameters = _parameters(self.index, chosen, effort)
        try:
            return _hits(*self.index.search(queries, k, params=parameters))
        except RuntimeError:  # kinds such as PQ know no selectors
            cos, nodes = self.index.search(queries, self.num_nodes)
            found = _hits(np.where(allowed[nodes], cos, -np.inf), nodes)
            return best_of([found], k)

    def _set_effort(self, effort: int) -> None:
        if self.effort_name is not None:
            faiss.ParameterSpace().set_index_parameter(self.index, self.effort_name, effort)

    def hide(self, nodes: np.ndarray) -> None:
        self._hidden = np.union1d(self._hidden, nodes)

    def write(self, path: Path) -> None:
        faiss.write_index(self.index, str(path))


class faiss_threads:  # noqa: N801 - used like a function
    """OpenMP threads of FAISS for the length of a block."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        self.before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(self.number)

    def __exit__(self, *error: object) -> None:
        faiss.omp_set_num_threads(self.before)


def _without(allowed: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    allowed = allowed.copy()
    allowed[hidden] = False
    return allowed


def _hits(cos: np.ndarray, nodes: np.ndarray) -> Hits:
    return Hits(np.where(nodes == NOTHING, -np.inf, cos).astype(np.float32), nodes)


def _read_faiss(path: Path) -> faiss.Index:
    try:
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ValueError(f"{path} is no FAISS index: {reason}") from None


def skip_polysemous(index: faiss.Index) -> None:
    """Codes ordered for a search we do not use: 13 of 14 s of training a small PQ."""
    inner = faiss.downcast_index(index)
    while isinstance(inner, faiss.IndexPreTransform):
        inner = faiss.downcast_index(inner.index)
    if hasattr(inner, "do_polysemous_training"):
        inner.do_polysemous_training = False


def _parameters(index: faiss.Index, chosen: Any, effort: int) -> Any:  # noqa: ANN401
    """Search parameters with a selector, for whatever stands inside."""
    inner = faiss.downcast_index(index)
    if isinstance(inner, faiss.IndexPreTransform):
        return untyped.SearchParametersPreTransform(
            index_params=_parameters(inner.index, chosen, effort)
        )
    if isinstance(inner, faiss.IndexIVF):
        return untyped.SearchParametersIVF(sel=chosen, nprobe=min(effort, inner.nlist))
    if isinstance(inner, faiss.IndexHNSW):
        return untyped.SearchParametersHNSW(sel=chosen, efSearch=effort)
    return untyped.SearchParameters(sel=chosen)
