"""Who encodes a text, against a dictionary; records on disk."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sbert_core.corpus.parquet import hash_texts
from sbert_core.storage import LocalStorage
from sbert_core.vectors.grouped_file import read_group, write_groups
from sbert_core.vectors.text_owners import (
    TEXT_RECORD,
    assign_partitions,
    find_owners,
    find_repeats,
    make_records,
)

OCCURRENCES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(0, 6)),
    max_size=60,
    unique_by=lambda place: place[:2],
)


def records(occurrences) -> np.ndarray:
    made = [
        make_records(hash_texts([f"text {text}"])[1], unit, np.array([row]))
        for unit, row, text in occurrences
    ]
    return np.concatenate([np.empty(0, TEXT_RECORD), *made])


@settings(deadline=None, max_examples=200)
@given(OCCURRENCES, st.integers(0, 6), st.randoms())
def test_owner_is_an_earlier_part_else_the_first_occurrence(occurrences, num_units, random):
    owners: dict[int, tuple[int, int]] = {}
    units_of_text: dict[int, set[int]] = {}
    num_seen: dict[int, int] = {}
    ranks: dict[tuple[int, int], int] = {}
    for unit, row, text in sorted(occurrences, key=lambda o: (o[0] < num_units, o[0], o[1])):
        owners.setdefault(text, (unit, row))
        units_of_text.setdefault(text, set()).add(unit)
        if unit < num_units:
            ranks[unit, row] = num_seen.get(text, 0)
            num_seen[text] = ranks[unit, row] + 1
    shuffled = list(occurrences)
    random.shuffle(shuffled)
    unit, refs = find_owners(records(shuffled), num_units)
    found = {(int(u), int(c["row"])): c for u, c in zip(unit, refs, strict=True)}
    assert set(found) == {(u, r) for u, r, _ in occurrences if u < num_units}
    for u, r, text in occurrences:
        if u < num_units:
            ref = found[u, r]
            assert (int(ref["owner_unit"]), int(ref["owner_row"])) == owners[text]
            assert int(ref["occurrence"]) == ranks[u, r]
            assert bool(ref["is_shared"]) == (units_of_text[text] != {owners[text][0]})


def test_repeats_are_found_within_and_across_units():
    found = find_repeats(records([(0, 0, 1), (0, 1, 2), (3, 0, 1), (4, 7, 9), (4, 8, 9)]))
    assert {(int(r["unit"]), int(r["row"])) for r in found} == {(0, 0), (3, 0), (4, 7), (4, 8)}
    assert len(find_repeats(records([(0, 0, 1), (1, 0, 2)]))) == 0


def test_groups_are_read_back_each_group_in_order(tmp_path):
    every = records([(unit, row, unit * row) for unit in range(4) for row in range(50)])
    group = assign_partitions(every, 7)
    storage = LocalStorage(tmp_path)
    write_groups(storage, "a/groups", group, every, 7)
    for number in range(7):
        found = read_group(storage, "a/groups", number, 7, TEXT_RECORD)
        np.testing.assert_array_equal(found, every[group == number])
