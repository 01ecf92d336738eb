"""Who encodes a text: records of texts -> for each unit the owner of each of its vectors.

In:  of each distinct text of a unit, or of a part of an earlier run, its hash and first row. Parts
     of earlier runs are numbered after the units.
Out: CLAIM: for each distinct text of a unit, the unit or part, and the row there, whose vector it
     gets.

The owner is an earlier run's vector if there is one, else the first occurrence in unit and row
order; so it does not depend on the order in which units are scanned. A text that a unit repeats is
one record, so that no text has more records than there are units and parts.
"""

import numpy as np

from sbert_core.arrays import BoolArray, Int64Array, RecordArray, UInt64Array

# num_rows: of the text in the part; row: the first of them.
TEXT_RECORD = np.dtype(
    [
        ("hi", "<u8"),
        ("lo", "<u8"),
        ("part", "<u4"),
        ("row", "<u4"),
        ("num_rows", "<u4"),
        ("num_chars", "<u4"),
    ]
)
# row: the first of num_rows with the text in the unit. occurrence: how many rows of earlier units
# have it. is_lent: other units use the vector.
CLAIM = np.dtype(
    [
        ("unit", "<u4"),
        ("row", "<u4"),
        ("num_rows", "<u4"),
        ("num_chars", "<u4"),
        ("owner", "<u4"),
        ("owner_row", "<u4"),
        ("occurrence", "<u8"),
        ("is_lent", "?"),
    ]
)
# Owners of a claim whose vector will be lent: one for all units, one for all earlier parts.
LENT_BY_UNIT, LENT_BY_EARLIER = 2**32 - 2, 2**32 - 1
# A vector that its owner lends: for the text that a unit has first in this row.
LOAN = np.dtype([("owner", "<u4"), ("owner_row", "<u4"), ("unit", "<u4"), ("row", "<u4")])


def make_records(
    hashes: UInt64Array, part: int, row: Int64Array, num_chars: Int64Array | int = 0
) -> RecordArray:
    """A TEXT_RECORD for each of (n, 2) hashes at rising rows of one part."""
    records = np.empty(len(hashes), TEXT_RECORD)
    records["hi"], records["lo"] = hashes[:, 0], hashes[:, 1]
    records["part"], records["row"] = part, row
    records["num_chars"], records["num_rows"] = num_chars, 1
    return records


def merge_occurrences(records: RecordArray) -> RecordArray:
    """One record for each text of a part, that of its first row, with the number of all."""
    first, group, _ = _distinct(_hashes(records))
    merged = records[first]
    merged["num_rows"] = np.bincount(group, records["num_rows"], len(first)).astype(np.uint32)
    return merged


def keep_two(records: RecordArray) -> RecordArray:
    """The first two records of each hash: enough to see that it repeats, and where."""
    _, group, _ = _distinct(_hashes(records))
    return records[_ranks(group) < 2]


def hash_key(records: RecordArray) -> UInt64Array:
    """Equal texts have equal keys; different ones do too once in 2^64, and then come together."""
    return records["hi"]


def choose_reduces(records: RecordArray, num_reduces: int) -> Int64Array:
    """The reduce of each record; equal hashes get the same."""
    reduce: Int64Array = (records["lo"] % np.uint64(num_reduces)).astype(np.int64)
    return reduce


def unit_key(records: RecordArray) -> UInt64Array:
    """The order of units and rows."""
    return _place_key(records["unit"], records["row"])


def owner_key(records: RecordArray) -> UInt64Array:
    """The order of owners and their rows."""
    return _place_key(records["owner"], records["owner_row"])


def find_owners(records: RecordArray, num_units: int) -> RecordArray:
    """The CLAIM of each text of each unit, from all records of some texts.

    num_units: of this run; higher numbers are parts of earlier runs.
    """
    is_unit = records["part"] < num_units
    order = np.lexsort((records["row"], records["part"], is_unit, records["lo"], records["hi"]))
    ordered, is_unit = records[order], is_unit[order]
    group, first = _groups(ordered)
    owner = first[group]
    before = np.cumsum(np.where(is_unit, ordered["num_rows"], 0), dtype=np.uint64)
    before -= np.where(is_unit, ordered["num_rows"], 0).astype(np.uint64)
    is_borrowed = ordered["part"] != ordered["part"][owner]
    claims = np.empty(len(ordered), CLAIM)
    claims["unit"], claims["row"] = ordered["part"], ordered["row"]
    claims["owner"], claims["owner_row"] = ordered["part"][owner], ordered["row"][owner]
    claims["occurrence"] = before - before[owner]
    claims["num_rows"], claims["num_chars"] = ordered["num_rows"], ordered["num_chars"]
    claims["is_lent"] = (np.bincount(group, is_borrowed, len(first)) > 0)[group]
    return claims[is_unit]


def find_repeats(records: RecordArray) -> RecordArray:
    """Records whose hash occurs more than once, equal hashes side by side."""
    ordered = records[np.lexsort((records["row"], records["part"], records["lo"], records["hi"]))]
    group, _ = _groups(ordered)
    return ordered[(np.bincount(group) > 1)[group]] if len(ordered) else ordered


def expand_claims(claims: RecordArray, hashes: UInt64Array, row: Int64Array) -> RecordArray | None:
    """The claim of every row of a unit, from those of its distinct texts in order of rows.

    hashes: of all rows with a valid text, `row` their numbers. None if these are other texts than
    the claims were made for.
    """
    first, group, _ = _distinct(hashes)
    if not np.array_equal(np.sort(row[first]), claims["row"]):
        return None
    expanded = claims[np.searchsorted(claims["row"], row[first])][group]
    expanded["occurrence"] += _ranks(group).astype(np.uint64)
    expanded["row"] = row
    return expanded


def _hashes(records: RecordArray) -> UInt64Array:
    return np.stack([records["hi"], records["lo"]], axis=1)


def make_loans(
    claims: RecordArray, is_far: BoolArray, num_units: int
) -> tuple[RecordArray, RecordArray]:
    """Claims whose far vectors are lent, and the LOANs that bring these.

    is_far: by claim, whether the unit cannot read the vector itself. A lent vector is found by the
    row of the claim in the place of its owner's.
    """
    loans = np.empty(int(is_far.sum()), LOAN)
    for name in LOAN.names or ():
        loans[name] = claims[name][is_far]
    from_units = claims["owner"] < num_units
    claims = claims.copy()
    claims["owner"] = np.where(
        is_far, np.where(from_units, LENT_BY_UNIT, LENT_BY_EARLIER), claims["owner"]
    )
    claims["owner_row"] = np.where(is_far, claims["row"], claims["owner_row"])
    return claims, loans


def _distinct(hashes: UInt64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Of each distinct hash its first place and its count; of each place its hash's number."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable: places of a hash stay in order
    ordered = hashes[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    number = np.cumsum(is_new) - 1
    group = np.empty(len(order), np.int64)
    group[order] = number
    return order[is_new], group, np.bincount(number)


def _ranks(group: Int64Array) -> Int64Array:
    """How many places before each have its group."""
    order = np.argsort(group, kind="stable")
    counts = np.bincount(group)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    ranks = np.empty(len(group), np.int64)
    ranks[order] = np.arange(len(group)) - starts
    return ranks


def _groups(ordered: RecordArray) -> tuple[Int64Array, Int64Array]:
    """The group number of each record of a sorted array, and the position of each group's first."""
    if not len(ordered):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    new = np.ones(len(ordered), bool)
    new[1:] = (ordered["hi"][1:] != ordered["hi"][:-1]) | (ordered["lo"][1:] != ordered["lo"][:-1])
    return np.cumsum(new) - 1, np.flatnonzero(new)


def _place_key(part: np.ndarray, row: np.ndarray) -> UInt64Array:
    key: UInt64Array = (part.astype(np.uint64) << np.uint64(32)) | row.astype(np.uint64)
    return key
