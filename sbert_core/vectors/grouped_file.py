"""Records grouped by a small number: the files of a shuffle on disk.

In:  numpy records and the group (a partition, a unit) each belongs to.
Out: one file, records sorted by group after a table of offsets; a group is one byte range.
"""

import numpy as np

from sbert_core.storage import Storage

OFFSET = np.dtype("<u8")


def write_groups(
    storage: Storage, name: str, group: np.ndarray, records: np.ndarray, num_groups: int
) -> None:
    """Write records grouped by `group`, their order within a group kept."""
    order = np.argsort(group, kind="stable")
    offsets = np.searchsorted(group[order], np.arange(num_groups + 1)).astype(OFFSET)
    storage.put(name, offsets.tobytes() + records[order].tobytes())


def read_group(
    storage: Storage, name: str, group: int, num_groups: int, dtype: np.dtype
) -> np.ndarray:
    """The records of one group, in the order they were written in."""
    place = group * OFFSET.itemsize
    first, end = np.frombuffer(storage.read_range(name, place, 2 * OFFSET.itemsize), OFFSET)
    start = (num_groups + 1) * OFFSET.itemsize + int(first) * dtype.itemsize
    return np.frombuffer(storage.read_range(name, start, int(end - first) * dtype.itemsize), dtype)
