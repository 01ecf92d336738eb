"""k-means on the sphere: unit centroids of a sample."""

from typing import Any

import faiss
import numpy as np

from sbert_core.index.kinds import faiss_threads

untyped: Any = faiss  # its stubs do not know all of it


def unit_means(
    unit_ND: np.ndarray, number: int, seed: int, *, steps: int, rows_per_mean: int
) -> np.ndarray:
    """(number, D) float32; on one thread, so that it repeats."""
    means = untyped.Kmeans(
        unit_ND.shape[1],
        number,
        niter=steps,
        spherical=True,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=rows_per_mean,
    )
    with faiss_threads(1):
        means.train(np.ascontiguousarray(unit_ND, np.float32))
    return means.centroids
