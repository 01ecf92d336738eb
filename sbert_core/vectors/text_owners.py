"""Assign each occurrence of a text to the unit and row that own its vector.

In:  one partition's records: content hash, unit, row. Parts of earlier runs are numbered after the
     new units.
Out: OWNER_REF: for each occurrence in a new unit, the unit and row of the owner.

The owner is an earlier run's vector if there is one, else the first occurrence in unit and row
order; so it does not depend on the order in which units are scanned.
"""

import numpy as np

TEXT_RECORD = np.dtype(
    [("hi", "<u8"), ("lo", "<u8"), ("unit", "<u4"), ("row", "<u4"), ("num_chars", "<u4")]
)
# occurrence: how many times the text occurred before; is_shared: another unit uses the vector.
OWNER_REF = np.dtype(
    [
        ("row", "<u4"),
        ("owner_unit", "<u4"),
        ("owner_row", "<u4"),
        ("occurrence", "<u4"),
        ("num_chars", "<u4"),
        ("is_shared", "?"),
    ]
)


def make_records(
    hashes: np.ndarray, unit: int, row: np.ndarray, num_chars: np.ndarray | int = 0
) -> np.ndarray:
    """TEXT_RECORDs of (n, 2) uint64 hashes at rows of one unit."""
    records = np.empty(len(hashes), TEXT_RECORD)
    records["hi"], records["lo"] = hashes[:, 0], hashes[:, 1]
    records["unit"], records["row"], records["num_chars"] = unit, row, num_chars
    return records


def assign_partitions(records: np.ndarray, num_partitions: int) -> np.ndarray:
    """The partition of each record; equal hashes get the same."""
    return (records["hi"] % np.uint64(num_partitions)).astype(np.int64)


def find_owners(records: np.ndarray, num_units: int) -> tuple[np.ndarray, np.ndarray]:
    """The unit of each occurrence in new units, and its OWNER_REF.

    num_units: of this run; higher numbers are parts of earlier runs.
    """
    is_new = records["unit"] < num_units
    order = np.lexsort((records["row"], records["unit"], is_new, records["lo"], records["hi"]))
    ordered, is_new = records[order], is_new[order]
    group, first = _groups(ordered)
    owner = first[group]
    num_new = np.cumsum(is_new)
    is_borrowed = ordered["unit"] != ordered["unit"][owner]
    refs = np.empty(len(ordered), OWNER_REF)
    refs["row"] = ordered["row"]
    refs["owner_unit"] = ordered["unit"][owner]
    refs["owner_row"] = ordered["row"][owner]
    refs["occurrence"] = np.maximum(num_new - 1 - (num_new - is_new)[owner], 0)
    refs["num_chars"] = ordered["num_chars"]
    refs["is_shared"] = (np.bincount(group, is_borrowed, len(first)) > 0)[group]
    return ordered["unit"][is_new].astype(np.int64), refs[is_new]


def find_repeats(records: np.ndarray) -> np.ndarray:
    """Records whose hash occurs more than once, equal hashes side by side."""
    ordered = records[np.lexsort((records["row"], records["unit"], records["lo"], records["hi"]))]
    group, _ = _groups(ordered)
    return ordered[(np.bincount(group) > 1)[group]] if len(ordered) else ordered


def _groups(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The group number of each record of a sorted array, and the position of each group's first."""
    if not len(ordered):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    new = np.ones(len(ordered), bool)
    new[1:] = (ordered["hi"][1:] != ordered["hi"][:-1]) | (ordered["lo"][1:] != ordered["lo"][:-1])
    return np.cumsum(new) - 1, np.flatnonzero(new)
