"""k-means on the sphere: unit centroids of a sample."""

import numpy as np

from sbert_core.faiss_library import faiss_threads, untyped


def spherical_kmeans(
    unit_ND: np.ndarray, num_centroids: int, seed: int, *, num_steps: int, rows_per_centroid: int
) -> np.ndarray:
    """Unit centroids of unit rows, (num_centroids, D) float32.

    rows_per_centroid: a larger sample is cut down to so many rows of each. One thread, so that the
    same sample and seed give the same centroids.
    """
    kmeans = untyped.Kmeans(
        unit_ND.shape[1],
        num_centroids,
        niter=num_steps,
        spherical=True,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=rows_per_centroid,
    )
    with faiss_threads(1):
        kmeans.train(np.ascontiguousarray(unit_ND, np.float32))
    centroids: np.ndarray = kmeans.centroids
    return centroids
