"""Edges -> connected components, and the one that looks like a chain."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from sbert_core.join.bounded import Edges

LEAST_GIANT = 100  # rows; what a small corpus hangs together by is for its reader to see


@dataclass(frozen=True, slots=True)
class Giant:
    """A component that holds too many rows which do not reach a common one."""

    label: int
    rows: int
    chained: int


def components(edges: Edges, num_rows: int) -> np.ndarray:
    """For each row the smallest row it is connected with."""
    ones = np.ones(len(edges), np.int8)
    graph = coo_matrix((ones, (edges.a, edges.b)), shape=(num_rows, num_rows)).tocsr()
    number, label = connected_components(graph, directed=False)
    smallest = np.full(number, num_rows, np.int64)
    np.minimum.at(smallest, label, np.arange(num_rows))
    return smallest[label]


def giant(label: np.ndarray, canonical: np.ndarray, max_share: float) -> Giant | None:
    """The worst component with more chained rows than that share of all, if there is one.

    A row is chained if its kept row is not the one most of its component have: a sentence repeated
    a million times is a large cluster, but no chain.
    """
    num_rows = len(label)
    keys, rows = np.unique(label * np.int64(num_rows) + canonical, return_counts=True)
    size = np.bincount(label, minlength=num_rows)
    largest = np.zeros(num_rows, np.int64)
    np.maximum.at(largest, keys // num_rows, rows)
    chained = size - largest
    worst = int(chained.argmax())
    if chained[worst] <= max(LEAST_GIANT, max_share * num_rows):
        return None
    return Giant(worst, int(size[worst]), int(chained[worst]))
