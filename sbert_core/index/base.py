"""The interface that every index library is used through.

In:  unit vectors, numbered in the order in which they are added: nodes.
Out: for each query the nodes of highest cosine.

`effort` trades time for recall: `ef` of a graph, the number of cells visited of an inverted file.
Indexes without such a setting ignore it.
"""

from pathlib import Path
from typing import Protocol

import numpy as np

from sbert_core.index.hits import Hits

# Below this share of allowed nodes a graph search runs into dead ends: hnsw.py then compares with
# every allowed vector, faiss_index.py raises the effort to the number of nodes.
SPARSE_SHARE = 0.1


class VectorIndex(Protocol):
    """Search over the distinct vectors of one shard.

    suffix: of the file that `write` makes.
    is_lossy: returned cosines differ from those of the vectors that were added (compressed codes).
    """

    suffix: str
    is_lossy: bool

    @property
    def num_nodes(self) -> int:
        """Vectors added so far, hidden ones included."""

    def add(self, vectors: np.ndarray) -> None:
        """Append unit vectors; they become the next nodes."""

    def search(self, queries: np.ndarray, k: int, effort: int, threads: int) -> Hits:
        """The k best nodes of each query; fewer places if fewer nodes are visible."""

    def search_among(self, queries: np.ndarray, k: int, effort: int, allowed: np.ndarray) -> Hits:
        """As `search`, on one thread, among the nodes a boolean mask allows."""

    def hide(self, nodes: np.ndarray) -> None:
        """Leave these nodes out of every later search; the file is not changed."""

    def write(self, path: Path) -> None:
        """Save a file the library itself can open."""


def mask_without(allowed: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """A copy of a mask with the hidden nodes switched off."""
    mask = allowed.copy()
    mask[hidden] = False
    return mask
