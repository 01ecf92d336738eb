"""Small numpy idioms with a name."""

import numpy as np


def ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """first[0], first[0] + 1, ... for counts[0] places; then first[1], ..."""
    ends = np.cumsum(counts)
    within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
    return np.repeat(first, counts) + within
