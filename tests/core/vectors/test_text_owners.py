"""Who encodes a text, against a dictionary; records on disk."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sbert_core.corpus.parquet import hashes_of
from sbert_core.storage import LocalStorage
from sbert_core.vectors.shuffle import read_run, write_runs
from sbert_core.vectors.text_owners import RECORD, claims_of, partition_of, records_of, repeats_of

OCCURRENCES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(0, 6)),
    max_size=60,
    unique_by=lambda place: place[:2],
)


def records(occurrences) -> np.ndarray:
    made = [
        records_of(hashes_of([f"text {text}"])[1], unit, np.array([row]))
        for unit, row, text in occurrences
    ]
    return np.concatenate([np.empty(0, RECORD), *made])


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
    unit, claims = claims_of(records(shuffled), num_units)
    found = {(int(u), int(c["row"])): c for u, c in zip(unit, claims, strict=True)}
    assert set(found) == {(u, r) for u, r, _ in occurrences if u < num_units}
    for u, r, text in occurrences:
        if u < num_units:
            claim = found[u, r]
            assert (int(claim["owner_unit"]), int(claim["owner_row"])) == owners[text]
            assert int(claim["occurrence"]) == ranks[u, r]
            assert bool(claim["is_lent"]) == (units_of_text[text] != {owners[text][0]})


def test_repeats_are_found_within_and_across_units():
    found = repeats_of(records([(0, 0, 1), (0, 1, 2), (3, 0, 1), (4, 7, 9), (4, 8, 9)]))
    assert {(int(r["unit"]), int(r["row"])) for r in found} == {(0, 0), (3, 0), (4, 7), (4, 8)}
    assert len(repeats_of(records([(0, 0, 1), (1, 0, 2)]))) == 0


def test_runs_give_back_each_group_in_order(tmp_path):
    every = records([(unit, row, unit * row) for unit in range(4) for row in range(50)])
    group = partition_of(every, 7)
    storage = LocalStorage(tmp_path)
    write_runs(storage, "a/runs", group, every, 7)
    for number in range(7):
        run = read_run(storage, "a/runs", number, 7, RECORD)
        np.testing.assert_array_equal(run, every[group == number])
