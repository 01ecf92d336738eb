"""Indexes of FAISS, made from a factory string.

Files are the library's own: `faiss.read_index(path)` opens them.
"""

from pathlib import Path
from typing import Any

import faiss
import numpy as np

from sbert_core.faiss_library import faiss_threads, untyped
from sbert_core.index.base import SPARSE_SHARE, mask_without
from sbert_core.index.hits import NO_ROW, Hits, empty_hits, merge_hits

EXACT_TYPES = (faiss.IndexFlat, faiss.IndexIVFFlat, faiss.IndexHNSWFlat)


class FaissIndex:
    """A VectorIndex around any index of FAISS's factory.

    effort_name: FAISS's search parameter that effort sets, None if the index has none.
    """

    suffix = ".faiss"

    def __init__(self, index: faiss.Index, effort_name: str | None) -> None:
        self.index = index
        self.effort_name = effort_name
        self.is_lossy = not isinstance(faiss.downcast_index(index), EXACT_TYPES)
        self._hidden = np.empty(0, np.int64)

    @classmethod
    def read(cls, path: Path, effort_name: str | None) -> "FaissIndex":
        """Map a file of `write`; ValueError if FAISS cannot parse it."""
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ValueError(f"{path} is no FAISS index: {reason}") from None
        return cls(index, effort_name)

    @property
    def num_nodes(self) -> int:
        return int(self.index.ntotal)

    def add(self, vectors: np.ndarray) -> None:
        with faiss_threads(1):
            self.index.add(vectors)

    def search(self, queries: np.ndarray, k: int, effort: int, threads: int) -> Hits:
        if len(self._hidden):
            return self.search_among(queries, k, effort, np.ones(self.num_nodes, bool))
        k = min(k, self.num_nodes)
        if k < 1 or not len(queries):
            return empty_hits(len(queries), max(0, k))
        if self.effort_name is not None:
            faiss.ParameterSpace().set_index_parameter(self.index, self.effort_name, effort)
        with faiss_threads(threads):
            cos, nodes = self.index.search(queries, k)
        return _hits(cos, nodes)

    def search_among(self, queries: np.ndarray, k: int, effort: int, allowed: np.ndarray) -> Hits:
        allowed = mask_without(allowed, self._hidden)
        num_allowed = int(allowed.sum())
        k = min(k, num_allowed)
        if k < 1 or not len(queries):
            return empty_hits(len(queries), max(0, k))
        bits = np.packbits(allowed, bitorder="little")
        selector = untyped.IDSelectorBitmap(bits)
        if num_allowed < SPARSE_SHARE * self.num_nodes:
            effort = max(effort, self.num_nodes)
        parameters = _search_parameters(self.index, selector, effort)
        try:
            return _hits(*self.index.search(queries, k, params=parameters))
        except RuntimeError:  # kinds such as PQ take no selector: search all, then filter
            cos, nodes = self.index.search(queries, self.num_nodes)
            return merge_hits([_hits(np.where(allowed[nodes], cos, -np.inf), nodes)], k)

    def hide(self, nodes: np.ndarray) -> None:
        self._hidden = np.union1d(self._hidden, nodes)

    def write(self, path: Path) -> None:
        faiss.write_index(self.index, str(path))


def create_faiss(factory: str, dim: int) -> faiss.Index:
    """An empty index of inner products; ValueError if FAISS rejects factory and dimensions."""
    try:
        return faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0].rpartition("Error: ")[2]
        raise ValueError(
            f"kind faiss:{factory} cannot be made for {dim} dimensions ({reason}); see "
            "FAISS's list of factory strings"
        ) from None


def train_faiss(factory: str, sample: np.ndarray) -> faiss.Index:
    """An empty index with cells and codes fitted to a sample; ValueError if it is too small.

    On one thread, so that the same sample gives the same bytes.
    """
    index = create_faiss(factory, sample.shape[1])
    if index.is_trained:
        return index
    skip_polysemous(index)
    try:
        with faiss_threads(1):
            index.train(sample)
    except RuntimeError as error:
        raise ValueError(
            f"kind faiss:{factory} cannot be trained on {len(sample):,} vectors "
            f"({str(error).strip().splitlines()[-1]}); use a smaller kind or more rows"
        ) from None
    return index


def skip_polysemous(index: faiss.Index) -> None:
    """Switch off the ordering of codes for polysemous search, which is never used here.

    It takes 13 of the 14 s of training a small PQ.
    """
    inner = faiss.downcast_index(index)
    while isinstance(inner, faiss.IndexPreTransform):
        inner = faiss.downcast_index(inner.index)
    if hasattr(inner, "do_polysemous_training"):
        inner.do_polysemous_training = False


def _hits(cos: np.ndarray, nodes: np.ndarray) -> Hits:
    """FAISS's result as Hits: places it left empty get the cosine -inf."""
    return Hits(np.where(nodes == NO_ROW, -np.inf, cos).astype(np.float32), nodes)


def _search_parameters(index: faiss.Index, selector: Any, effort: int) -> Any:  # noqa: ANN401
    """Search parameters with a selector, for the index inside any pre-transforms."""
    inner = faiss.downcast_index(index)
    if isinstance(inner, faiss.IndexPreTransform):
        return untyped.SearchParametersPreTransform(
            index_params=_search_parameters(inner.index, selector, effort)
        )
    if isinstance(inner, faiss.IndexIVF):
        return untyped.SearchParametersIVF(sel=selector, nprobe=min(effort, inner.nlist))
    if isinstance(inner, faiss.IndexHNSW):
        return untyped.SearchParametersHNSW(sel=selector, efSearch=effort)
    return untyped.SearchParameters(sel=selector)
