"""Records grouped by a small number: the files of a shuffle on disk.

In:  numpy records and the group (a partition, a unit) each belongs to.
Out: one file, its records sorted by group; any group is read by its byte range.
"""

import numpy as np

from sbert_core.storage import Storage

OFFSET = np.dtype("<u8")


def write_runs(
    storage: Storage, name: str, group: np.ndarray, records: np.ndarray, num_groups: int
) -> None:
    """Keep the order of records within a group."""
    order = np.argsort(group, kind="stable")
    offsets = np.searchsorted(group[order], np.arange(num_groups + 1)).astype(OFFSET)
    storage.put(name, offsets.tobytes() + records[order].tobytes())


def read_run(
    storage: Storage, name: str, group: int, num_groups: int, dtype: np.dtype
) -> np.ndarray:
    """The records of one group."""
    place = group * OFFSET.itemsize
    first, end = np.frombuffer(storage.read_range(name, place, 2 * OFFSET.itemsize), OFFSET)
    start = (num_groups + 1) * OFFSET.itemsize + int(first) * dtype.itemsize
    return np.frombuffer(storage.read_range(name, start, int(end - first) * dtype.itemsize), dtype)
