"""Vectors of the two sides of pairs -> the similarity of each pair, by four measures.

Larger is more similar in all of them, so distances are negative.

Shapes: N pairs, D dimensions.
"""

import numpy as np

TINY = 1e-12


def cosines(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    """Cosine of each pair of rows."""
    return dots(_unit(a_ND), _unit(b_ND))


def dots(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    """Dot product of each pair of rows."""
    products_N: np.ndarray = np.einsum("nd,nd->n", a_ND.astype(np.float64), b_ND.astype(np.float64))
    return products_N


def euclidean(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    """Negative Euclidean distance of each pair of rows."""
    distance_N: np.ndarray = np.linalg.norm(
        a_ND.astype(np.float64) - b_ND.astype(np.float64), axis=1
    )
    return -distance_N


def manhattan(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    """Negative Manhattan distance of each pair of rows."""
    distance_N: np.ndarray = np.abs(a_ND.astype(np.float64) - b_ND.astype(np.float64)).sum(1)
    return -distance_N


SIMILARITIES = {"cosine": cosines, "euclidean": euclidean, "manhattan": manhattan, "dot": dots}


def _unit(x_ND: np.ndarray) -> np.ndarray:
    x_ND = x_ND.astype(np.float64)
    unit_ND: np.ndarray = x_ND / np.maximum(np.linalg.norm(x_ND, axis=1, keepdims=True), TINY)
    return unit_ND
