"""Occurrences of texts -> who encodes each distinct text, and who borrows from whom.

In:  one partition's records: content hash, unit, row. Parts of earlier runs take part as units
     numbered after the new ones.
Out: Claims: for each occurrence in a new unit, the unit and row that own its vector.

The owner is an earlier run's vector if there is one, else the first occurrence in unit and row
order: it does not depend on who scanned first.
"""

import numpy as np

RECORD = np.dtype(
    [("hi", "<u8"), ("lo", "<u8"), ("unit", "<u4"), ("row", "<u4"), ("num_chars", "<u4")]
)
# occurrence: how many times the text came before; is_lent: another unit borrows the vector.
CLAIM = np.dtype(
    [
        ("row", "<u4"),
        ("owner_unit", "<u4"),
        ("owner_row", "<u4"),
        ("occurrence", "<u4"),
        ("num_chars", "<u4"),
        ("is_lent", "?"),
    ]
)


def records_of(
    hashes: np.ndarray, unit: int, row: np.ndarray, num_chars: np.ndarray | int = 0
) -> np.ndarray:
    """Records of (n, 2) uint64 hashes."""
    records = np.empty(len(hashes), RECORD)
    records["hi"], records["lo"] = hashes[:, 0], hashes[:, 1]
    records["unit"], records["row"], records["num_chars"] = unit, row, num_chars
    return records


def partition_of(records: np.ndarray, num_partitions: int) -> np.ndarray:
    """Equal hashes meet in one partition."""
    return (records["hi"] % np.uint64(num_partitions)).astype(np.int64)


def claims_of(records: np.ndarray, num_units: int) -> tuple[np.ndarray, np.ndarray]:
    """The unit of each claim, and the claims, of all occurrences in new units."""
    is_new = records["unit"] < num_units
    order = np.lexsort((records["row"], records["unit"], is_new, records["lo"], records["hi"]))
    ordered, is_new = records[order], is_new[order]
    group, first = _groups(ordered)
    owner = first[group]
    num_new = np.cumsum(is_new)
    is_abroad = ordered["unit"] != ordered["unit"][owner]
    claims = np.empty(len(ordered), CLAIM)
    claims["row"] = ordered["row"]
    claims["owner_unit"] = ordered["unit"][owner]
    claims["owner_row"] = ordered["row"][owner]
    claims["occurrence"] = np.maximum(num_new - 1 - (num_new - is_new)[owner], 0)
    claims["num_chars"] = ordered["num_chars"]
    claims["is_lent"] = (np.bincount(group, is_abroad, len(first)) > 0)[group]
    return ordered["unit"][is_new].astype(np.int64), claims[is_new]


def repeats_of(records: np.ndarray) -> np.ndarray:
    """Records whose hash another record has too, in groups."""
    ordered = records[np.lexsort((records["row"], records["unit"], records["lo"], records["hi"]))]
    group, _ = _groups(ordered)
    return ordered[(np.bincount(group) > 1)[group]] if len(ordered) else ordered


def _groups(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The group number of each record of a sorted array, and each group's first place."""
    if not len(ordered):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    new = np.ones(len(ordered), bool)
    new[1:] = (ordered["hi"][1:] != ordered["hi"][:-1]) | (ordered["lo"][1:] != ordered["lo"][:-1])
    return np.cumsum(new) - 1, np.flatnonzero(new)
