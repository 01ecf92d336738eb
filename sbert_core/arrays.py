"""Types of numpy arrays by what they hold, and small numpy idioms with a name."""

import numpy as np
from numpy.typing import NDArray

# A bare `np.ndarray` holds Any: these let the type checker tell row numbers from vectors.
BoolArray = NDArray[np.bool]
Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
UInt32Array = NDArray[np.uint32]
UInt64Array = NDArray[np.uint64]
Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]
FloatArray = NDArray[np.float32 | np.float64]
RealArray = NDArray[np.floating | np.integer]  # numbers of any kind that a caller has
BytesArray = NDArray[np.bytes_]  # digests
ObjectArray = NDArray[np.object_]
RecordArray = NDArray[np.void]  # of a structured dtype


def concat_ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenate `arange(first[i], first[i] + counts[i])` over all i, without a Python loop."""
    ends = np.cumsum(counts)
    within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
    result: np.ndarray = np.repeat(first, counts) + within
    return result
