import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbert_core.encoder.batching import Batch, flat_batches, num_padding, padded_batches

lengths_and_budget = st.tuples(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 1000))


@pytest.mark.parametrize("cut", [flat_batches, padded_batches])
@given(lengths_and_budget)
def test_batches_hold_every_text_once_longest_first(cut, case):
    lengths, budget = np.array(case[0], dtype=np.int64), case[1]
    order = [row for batch in cut(lengths, budget) for row in batch.tolist()]
    assert sorted(order) == list(range(len(lengths)))
    assert (np.diff(lengths[order]) <= 0).all() if order else True


@given(lengths_and_budget)
def test_flat_batches_fit_the_budget_and_could_not_take_one_more(case):
    lengths, budget = np.array(case[0], dtype=np.int64), case[1]
    batches = flat_batches(lengths, budget)
    for batch in batches:
        assert len(batch) == 1 or lengths[batch].sum() <= budget
    for batch, following in zip(batches, batches[1:], strict=False):
        assert lengths[batch].sum() + lengths[following[0]] > budget


@given(lengths_and_budget)
def test_padded_batches_fit_the_budget_after_padding(case):
    lengths, budget = np.array(case[0], dtype=np.int64), case[1]
    for batch in padded_batches(lengths, budget):
        assert len(batch) == 1 or lengths[batch].max() * len(batch) <= budget


@given(st.lists(st.integers(1, 6), min_size=1, max_size=30))
def test_groups_cover_the_flat_row_with_texts_of_one_length(lengths):
    lengths = sorted(lengths, reverse=True)
    ids = [np.full(length, text) for text, length in enumerate(lengths)]
    batch = Batch.of(np.arange(len(ids)), ids)
    assert len(batch.groups) == len(set(lengths))
    for group in batch.groups:
        texts = batch.ids_T[group.tokens].reshape(group.num_texts, group.length)
        np.testing.assert_array_equal(texts[:, 0], np.arange(len(ids))[group.rows])
        assert (texts == texts[:, :1]).all()


def test_halves_keep_rows_and_tokens():
    ids = [np.arange(5), np.arange(3), np.arange(3), np.arange(1)]
    first, second = Batch.of(np.array([7, 2, 9, 4]), ids).halves()
    assert [first.rows.tolist(), second.rows.tolist()] == [[7, 2], [9, 4]]
    assert first.ids_T.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert second.ids_T.tolist() == [0, 1, 2, 0]


def test_num_padding_counts_what_plain_batches_add():
    assert num_padding(np.array([5, 1, 2, 2, 9]), batch_size=2) == 4
    assert num_padding(np.array([3, 3]), batch_size=32) == 0
