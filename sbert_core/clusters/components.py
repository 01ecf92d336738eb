"""Edges -> connected components, and the component that looks like a chain."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from sbert_core.join.bounded import Edges

MIN_CHAINED_ROWS = 100  # a small corpus may well be one component; its reader sees that


@dataclass(frozen=True, slots=True)
class ChainedComponent:
    """A component in which many rows do not resemble its main row.

    label: its smallest row. rows: its size. chained: rows whose kept row is not the main one.
    """

    label: int
    rows: int
    chained: int


def label_components(edges: Edges, num_rows: int) -> np.ndarray:
    """For each row the smallest row it is connected with."""
    ones = np.ones(len(edges), np.int8)
    graph = coo_matrix((ones, (edges.a, edges.b)), shape=(num_rows, num_rows)).tocsr()
    num_components, component = connected_components(graph, directed=False)
    smallest = np.full(num_components, num_rows, np.int64)
    np.minimum.at(smallest, component, np.arange(num_rows))
    labels: np.ndarray = smallest[component]
    return labels


def find_chained_component(
    label: np.ndarray, canonical: np.ndarray, max_share: float
) -> ChainedComponent | None:
    """The worst component with more chained rows than that share of all, if there is one.

    label: component of each row. canonical: kept row of each row. A row is chained if its kept row
    is not the one most of its component have: a sentence repeated a million times makes a large
    component without a chain.
    """
    num_rows = len(label)
    keys, rows = np.unique(label * np.int64(num_rows) + canonical, return_counts=True)
    size = np.bincount(label, minlength=num_rows)
    largest = np.zeros(num_rows, np.int64)
    np.maximum.at(largest, keys // num_rows, rows)
    chained = size - largest
    worst = int(chained.argmax())
    if chained[worst] <= max(MIN_CHAINED_ROWS, max_share * num_rows):
        return None
    return ChainedComponent(worst, int(size[worst]), int(chained[worst]))
