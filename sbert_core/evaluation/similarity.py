"""Vectors of the two sides of pairs -> how similar each pair is, in four ways.

Larger is more similar in all of them, so distances count negative.

Shapes: N pairs, D dimensions.
"""

import numpy as np

TINY = 1e-12


def cosines(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    return dots(_unit(a_ND), _unit(b_ND))


def dots(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    return np.einsum("nd,nd->n", a_ND.astype(np.float64), b_ND.astype(np.float64))


def euclidean(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    return -np.linalg.norm(a_ND.astype(np.float64) - b_ND.astype(np.float64), axis=1)


def manhattan(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    return -np.abs(a_ND.astype(np.float64) - b_ND.astype(np.float64)).sum(1)


SIMILARITIES = {"cosine": cosines, "euclidean": euclidean, "manhattan": manhattan, "dot": dots}


def _unit(x_ND: np.ndarray) -> np.ndarray:
    x_ND = x_ND.astype(np.float64)
    return x_ND / np.maximum(np.linalg.norm(x_ND, axis=1, keepdims=True), TINY)
