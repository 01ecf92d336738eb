"""Vectors -> nodes: vectors that are equal after rounding to 8 bits share one.

Graph indexes break on repeats: their neighbour lists fill up with copies and lead nowhere else. So
a group of copies is inserted once, and its rows are put back when a search has found it.
"""

import hashlib

import numpy as np

STEPS = 127
KEY_BYTES = 16


def rounded_keys(vectors: np.ndarray) -> list[bytes]:
    """A digest of each vector in steps of 1/127 of its largest component."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    steps = np.rint(vectors / largest * STEPS).astype(np.int8)
    return [hashlib.blake2b(row.tobytes(), digest_size=KEY_BYTES).digest() for row in steps]


class VectorDeduper:
    """Node numbers of distinct vectors, in the order in which they are first added."""

    def __init__(self) -> None:
        self._nodes: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Distinct vectors so far."""
        return len(self._nodes)

    def assign_nodes(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The node of each vector, and the positions of those that made a new node."""
        before = len(self._nodes)
        assign = self._nodes.setdefault
        nodes = np.fromiter(
            (assign(key, len(self._nodes)) for key in rounded_keys(vectors)), np.int64, len(vectors)
        )
        new = np.flatnonzero(nodes >= before)
        return nodes, new[np.unique(nodes[new], return_index=True)[1]]
