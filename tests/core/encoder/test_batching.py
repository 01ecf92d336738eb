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
def test_flat_batches_fit_the_budget(case):
    lengths, budget = np.array(case[0], dtype=np.int64), case[1]
    for batch in flat_batches(lengths, budget, num_parallel=3):
        assert len(batch) == 1 or lengths[batch].sum() <= budget


@given(st.integers(1, 40), st.integers(1, 20_000), st.integers(300, 3000), st.integers(1, 7))
def test_flat_batches_have_about_equal_tokens(length, num_tokens, budget, num_parallel):
    lengths = np.full(num_tokens // length + 1, length)
    batches = flat_batches(lengths, budget, num_parallel)
    tokens = [int(lengths[batch].sum()) for batch in batches]
    assert max(tokens) - min(tokens) <= 2 * length
    least = -(-len(lengths) // max(1, budget // length))
    assert least <= len(batches) <= least + num_parallel
    if lengths.sum() >= 256 * (least + num_parallel):
        assert len(batches) % num_parallel == 0


def test_flat_batches_of_few_tokens_are_not_cut_for_all_workers():
    assert [len(batch) for batch in flat_batches(np.full(60, 10), 2048, 8)] == [30, 30]
    assert [len(batch) for batch in flat_batches(np.full(20, 10), 2048, 8)] == [20]


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
