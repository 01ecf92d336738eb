"""Quantize unit vectors for storage, and back.

In:  float32 unit vectors.
Out: float32, float16, or int8 with one scale for the whole artifact.
"""

from dataclasses import dataclass

import numpy as np

from sbert_core.choices import VectorType

INT8_MAX = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineErrors:
    """How far cosines move: of a vector with itself, and of neighbours in a sample."""

    self_max: float
    pair_mean: float
    pair_max: float


def quantize(vectors: np.ndarray, kind: VectorType, scale: float | None) -> np.ndarray:
    """Vectors as they are stored. scale: of int8, None for other types."""
    if kind is not VectorType.INT8:
        converted: np.ndarray = vectors.astype(kind.value)
        return converted
    assert scale is not None, "int8 vectors have a scale"
    steps: np.ndarray = np.clip(_steps(vectors, scale), -INT8_MAX, INT8_MAX).astype(np.int8)
    return steps


def _steps(vectors: np.ndarray, scale: float) -> np.ndarray:
    steps: np.ndarray = np.rint(vectors / np.float32(scale))
    return steps


def count_clipped(vectors: np.ndarray, scale: float) -> int:
    """Number of vectors with a component beyond the int8 range at this scale."""
    return int((np.abs(_steps(vectors, scale)) > INT8_MAX).any(axis=1).sum())


def dequantize(values: np.ndarray, scale: float | None) -> np.ndarray:
    """Stored vectors as float32; their length is only about one."""
    vectors = values.astype(np.float32)
    return vectors if scale is None else vectors * np.float32(scale)


def calibrate_scale(sample: np.ndarray) -> float:
    """The smallest int8 scale that holds the sample's largest component."""
    return float(np.abs(sample).max(initial=0.0)) / INT8_MAX or 1.0 / INT8_MAX


def measure_cosine_errors(
    sample: np.ndarray, kind: VectorType, scale: float | None
) -> CosineErrors:
    """How far quantizing moves cosines, on a sample of unit vectors."""
    exact = sample.astype(np.float64)
    coarse = dequantize(quantize(sample, kind, scale), scale).astype(np.float64)
    coarse /= np.linalg.norm(coarse, axis=1, keepdims=True).clip(1e-12)
    pairs = (coarse[1:] * coarse[:-1]).sum(1) - (exact[1:] * exact[:-1]).sum(1)
    return CosineErrors(
        self_max=float((1 - (exact * coarse).sum(1)).max(initial=0.0)),
        pair_mean=float(np.abs(pairs).mean()) if len(pairs) else 0.0,
        pair_max=float(np.abs(pairs).max(initial=0.0)),
    )
