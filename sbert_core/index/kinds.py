"""Kinds of indexes a user can name -> indexes of the two libraries.

In:  `hnsw`, or `faiss:` and a factory string.
Out: IndexKind: creates, trains and opens indexes of that kind, and lists its search efforts.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np

from sbert_core.index.base import VectorIndex
from sbert_core.index.faiss_index import FaissIndex, create_faiss, train_faiss
from sbert_core.index.hnsw import HnswIndex

ROWS_PER_CELL = 39  # the least FAISS trains a cell on without a warning
HNSW_EFFORTS = [128, 256, 512, 1024, 2048]
LEAST_CELLS_VISITED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKind:
    """How indexes are made.

    factory: a FAISS factory string, or None for hnswlib. m, ef_construction: of hnswlib alone.
    """

    factory: str | None = None
    m: int = 16
    ef_construction: int = 200

    @classmethod
    def parse(cls, word: str, m: int, ef_construction: int) -> "IndexKind":
        """The kind of --kind; ValueError for an unknown one."""
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
        """Cells of an inverted file, None for other kinds."""
        match = re.search(r"IVF(\d+)", self.factory or "")
        return int(match[1]) if match else None

    def fit_to(self, num_rows: int) -> "IndexKind":
        """The same kind with no more cells than can be trained on that many rows."""
        cells = self.num_cells
        if cells is None or cells <= num_rows:
            return self
        fewer = max(1, num_rows // ROWS_PER_CELL)
        assert self.factory is not None
        return IndexKind(factory=self.factory.replace(f"IVF{cells}", f"IVF{fewer}"))

    @property
    def effort_name(self) -> str | None:
        """The library's name of the search effort, None for kinds without one."""
        if self.factory is None:
            return "ef"
        if self.num_cells is not None:
            return "nprobe"
        return "efSearch" if "HNSW" in self.factory else None

    def efforts(self) -> list[int]:
        """Efforts to try for a recall target, rising; the first is the default."""
        if self.effort_name is None:
            return [1]
        if (cells := self.num_cells) is not None:
            shares = [max(1, cells // divisor) for divisor in (32, 16, 8, 4, 2, 1)]
            return sorted({min(cells, max(LEAST_CELLS_VISITED, effort)) for effort in shares})
        return list(HNSW_EFFORTS)

    def check_dim(self, dim: int) -> None:
        """ValueError if FAISS cannot make this kind for vectors of `dim` dimensions."""
        if self.factory is not None:
            create_faiss(self.factory, dim)

    def train(self, sample: np.ndarray) -> faiss.Index:
        """The empty FAISS index that all shards begin with, fitted to a sample of vectors."""
        assert self.factory is not None
        return train_faiss(self.factory, sample)

    def create(self, dim: int, max_nodes: int, seed: int, trained: Path | None) -> VectorIndex:
        """An index to fill. trained: file of what `train` returned; None for hnswlib."""
        if self.factory is None:
            return HnswIndex.create(dim, max_nodes, self.m, self.ef_construction, seed)
        assert trained is not None
        return FaissIndex(faiss.read_index(str(trained)), self.effort_name)

    def read(self, path: Path, dim: int) -> VectorIndex:
        """Open the file of an index; ValueError if its library cannot."""
        if self.factory is None:
            return HnswIndex.read(path, dim)
        return FaissIndex.read(path, self.effort_name)
