"""Small numpy idioms with a name."""

import numpy as np


def concat_ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate `arange(first[i], first[i] + counts[i])` over all i, without a Python loop."""
    ends = np.cumsum(counts)
    within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
    result: np.ndarray = np.repeat(first, counts) + within
    return result
