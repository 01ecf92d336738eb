"""Who encodes a text, against a dictionary."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sbert_core.corpus.parquet import hash_texts
from sbert_core.vectors.text_owners import (
    CLAIM,
    LENT_BY_EARLIER,
    LENT_BY_UNIT,
    TEXT_RECORD,
    expand_claims,
    find_owners,
    find_repeats,
    keep_two,
    make_loans,
    make_records,
    merge_occurrences,
)

# Unit or part, row, text.
OCCURRENCES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(0, 6)),
    max_size=60,
    unique_by=lambda place: place[:2],
)


def hashes_of(texts) -> np.ndarray:
    return hash_texts([f"text {text}" for text in texts])[1]


def records(occurrences) -> np.ndarray:
    """One record for each occurrence."""
    made = [
        make_records(hashes_of([text]), part, np.array([row])) for part, row, text in occurrences
    ]
    return np.concatenate([np.empty(0, TEXT_RECORD), *made])


def records_by_part(occurrences, random) -> np.ndarray:
    """As the scan makes them: each part on its own, its repeats merged; parts in any order."""
    parts = list({part for part, *_ in occurrences})
    random.shuffle(parts)
    merged = [
        merge_occurrences(records(sorted(o for o in occurrences if o[0] == part))) for part in parts
    ]
    return np.concatenate([np.empty(0, TEXT_RECORD), *merged])


@settings(deadline=None, max_examples=200)
@given(OCCURRENCES, st.integers(0, 6), st.randoms())
def test_owner_is_an_earlier_part_else_the_first_occurrence(occurrences, num_units, random):
    owners: dict[int, tuple[int, int]] = {}
    parts_of_text: dict[int, set[int]] = {}
    num_seen: dict[int, int] = {}
    ranks: dict[tuple[int, int], int] = {}
    for part, row, text in sorted(occurrences, key=lambda o: (o[0] < num_units, o[0], o[1])):
        owners.setdefault(text, (part, row))
        parts_of_text.setdefault(text, set()).add(part)
        if part < num_units:
            ranks[part, row] = num_seen.get(text, 0)
            num_seen[text] = ranks[part, row] + 1
    claims = find_owners(records_by_part(occurrences, random), num_units)
    for unit in range(num_units):
        own = sorted((row, text) for part, row, text in occurrences if part == unit)
        rows = np.array([row for row, _ in own], np.int64)
        mine = claims[claims["unit"] == unit]
        refs = expand_claims(mine[np.argsort(mine["row"])], hashes_of(t for _, t in own), rows)
        assert refs is not None
        np.testing.assert_array_equal(refs["row"], rows)
        for ref, (row, text) in zip(refs, own, strict=True):
            assert (int(ref["owner"]), int(ref["owner_row"])) == owners[text]
            assert int(ref["occurrence"]) == ranks[unit, row]
            assert bool(ref["is_lent"]) == (parts_of_text[text] != {owners[text][0]})
    assert set(claims["unit"].tolist()) <= set(range(num_units))


@settings(deadline=None, max_examples=200)
@given(OCCURRENCES, st.integers(0, 6), st.sets(st.integers(0, 6)), st.randoms())
def test_loans_bring_what_a_unit_cannot_read_itself(occurrences, num_units, near, random):
    claims = find_owners(records_by_part(occurrences, random), num_units)
    is_far = (claims["owner"] != claims["unit"]) & ~np.isin(claims["owner"], list(near))
    kept, loans = make_loans(claims, is_far, num_units)
    fields = ["owner", "owner_row", "unit", "row"]
    want = [tuple(int(c[name]) for name in fields) for c in claims[is_far]]
    assert [tuple(int(loan[name]) for name in fields) for loan in loans] == want
    for before, after, far in zip(claims, kept, is_far, strict=True):
        if not far:
            assert after == before
            continue
        is_unit = before["owner"] < num_units
        assert after["owner"] == (LENT_BY_UNIT if is_unit else LENT_BY_EARLIER)
        assert after["owner_row"] == after["row"] == before["row"]


def test_claims_of_other_texts_are_not_expanded():
    claims = find_owners(merge_occurrences(records([(0, 0, 1), (0, 1, 2), (0, 2, 1)])), 1)
    claims = claims[np.argsort(claims["row"])]
    rows = np.arange(3)
    assert expand_claims(claims, hashes_of([1, 2, 1]), rows) is not None
    assert expand_claims(claims, hashes_of([1, 2, 3]), rows) is None
    assert expand_claims(claims, hashes_of([1, 1, 2]), rows) is None
    assert expand_claims(claims, hashes_of([1, 2]), rows[:2]) is not None, "as many distinct texts"
    assert expand_claims(np.empty(0, CLAIM), hashes_of([]), rows[:0]) is not None


def test_repeats_are_found_within_and_across_units():
    found = find_repeats(records([(0, 0, 1), (0, 1, 2), (3, 0, 1), (4, 7, 9), (4, 8, 9)]))
    assert {(int(r["part"]), int(r["row"])) for r in found} == {(0, 0), (3, 0), (4, 7), (4, 8)}
    assert len(find_repeats(records([(0, 0, 1), (1, 0, 2)]))) == 0


def test_two_records_of_a_hash_are_kept_the_first_ones():
    found = keep_two(records([(0, row, row % 2) for row in range(9)]))
    assert found["row"].tolist() == [0, 1, 2, 3]
