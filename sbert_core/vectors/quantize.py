"""Unit vectors -> the numbers that are stored, and back.

In:  float32 unit vectors.
Out: float32, float16, or int8 with one scale for the whole artifact.
"""

from enum import StrEnum

import numpy as np
import pyarrow as pa

INT8_MAX = 127


class VectorType(StrEnum):
    """How a component is stored."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"

    @property
    def arrow(self) -> pa.DataType:
        return {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}[self]


def stored(vectors: np.ndarray, kind: VectorType, scale: float | None) -> np.ndarray:
    """What goes to disk."""
    if kind is not VectorType.INT8:
        return vectors.astype(kind.value)
    assert scale is not None, "int8 vectors have a scale"
    return np.clip(_steps(vectors, scale), -INT8_MAX, INT8_MAX).astype(np.int8)


def _steps(vectors: np.ndarray, scale: float) -> np.ndarray:
    return np.rint(vectors / np.float32(scale))


def num_clipped(vectors: np.ndarray, scale: float) -> int:
    """Vectors with a component beyond what int8 holds at this scale."""
    return int((np.abs(_steps(vectors, scale)) > INT8_MAX).any(axis=1).sum())


def decoded(values: np.ndarray, scale: float | None) -> np.ndarray:
    """float32 vectors again; no longer of length exactly one."""
    vectors = values.astype(np.float32)
    return vectors if scale is None else vectors * np.float32(scale)


def calibrated_scale(sample: np.ndarray) -> float:
    """The step that just holds the sample's largest component."""
    return float(np.abs(sample).max(initial=0.0)) / INT8_MAX or 1.0 / INT8_MAX


def cosine_errors(sample: np.ndarray, kind: VectorType, scale: float | None) -> dict[str, float]:
    """How far cosines move: each vector against itself, and pairs of neighbours in the sample."""
    exact = sample.astype(np.float64)
    coarse = decoded(stored(sample, kind, scale), scale).astype(np.float64)
    coarse /= np.linalg.norm(coarse, axis=1, keepdims=True).clip(1e-12)
    pairs = (coarse[1:] * coarse[:-1]).sum(1) - (exact[1:] * exact[:-1]).sum(1)
    return {
        "self_max": float((1 - (exact * coarse).sum(1)).max(initial=0.0)),
        "pair_mean": float(np.abs(pairs).mean()) if len(pairs) else 0.0,
        "pair_max": float(np.abs(pairs).max(initial=0.0)),
    }
