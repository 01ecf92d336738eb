"""The order of training rows: whole, even, seeded, and to be taken up anywhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbert_core.training.sampler import EpochSampler
from sbert_core.training.schedule import learning_rate_factor
from sbert_core.training.splits import balanced_shards, first_occurrences, is_dev, text_components

ORDERS = st.builds(
    lambda rows, size, batch, seed: (rows, min(size, len(rows)), batch, seed),
    st.lists(st.integers(1, 9), min_size=1, max_size=7),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(0, 3),
)


def order_of(rows, size, batch, seed):
    return EpochSampler(shard_rows=tuple(rows), world_size=size, batch_size=batch, seed=seed)


@settings(max_examples=80, deadline=None)
@given(ORDERS)
def test_every_row_once_an_epoch_in_equal_steps(case):
    order = order_of(*case)
    seen = []
    for rank in range(order.world_size):
        batches = list(order.batches(rank, epoch=0))
        assert len(batches) == order.num_steps
        for step, pieces in enumerate(batches):
            num_rows = sum(len(rows) for _, rows in pieces)
            assert num_rows == order.step_rows(step)[rank] <= order.batch_size
            seen += [(shard, row) for shard, rows in pieces for row in rows.tolist()]
    assert sorted(seen) == [(s, r) for s, n in enumerate(order.shard_rows) for r in range(n)]


@settings(max_examples=40, deadline=None)
@given(ORDERS, st.integers(0, 10))
def test_taken_up_anywhere_the_rest_is_the_same(case, first):
    order = order_of(*case)
    first = min(first, order.num_steps)
    whole = list(order.batches(0, epoch=1))
    rest = list(order.batches(0, epoch=1, first_step=first))
    assert repr(whole[first:]) == repr(rest)


def test_epochs_and_seeds_differ_and_repeat():
    orders = [order_of([50, 50], 1, 8, seed) for seed in (0, 0, 1)]
    a, b, c = (repr(list(order.batches(0, 0))) for order in orders)
    assert a == b != c
    assert a != repr(list(orders[0].batches(0, 1)))


def test_fewer_rows_than_workers_are_refused():
    with pytest.raises(ValueError, match=r"4 workers, but 3 rows in 3 shards"):
        order_of([1, 1, 1], 4, 1, 0)


def test_rate_rises_and_falls_in_straight_lines():
    rates = [learning_rate_factor(step, 100, 0.1) for step in range(100)]
    assert rates[0] == 0 and rates[10] == 1
    np.testing.assert_allclose(np.diff(rates[:11]), 0.1)
    np.testing.assert_allclose(np.diff(rates[10:]), -1 / 90)


def brute_components(keys):
    group = list(range(len(keys)))
    changed = True
    while changed:
        changed = False
        for i in range(len(keys)):
            for j in range(len(keys)):
                if set(keys[i]) & set(keys[j]) and group[i] != group[j]:
                    group[i] = group[j] = min(group[i], group[j])
                    changed = True
    return group


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 12)] * 3), min_size=1, max_size=14))
def test_components_are_those_of_brute_force(rows):
    keys = np.array(rows, "<u8")
    found = text_components(keys)
    truth = brute_components(rows)
    assert all(
        (found[i] == found[j]) == (truth[i] == truth[j])
        for i in range(len(rows))
        for j in range(len(rows))
    )


def test_dev_shares_no_text_with_train_and_has_its_size():
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 4000, (1000, 2)).astype("<u8")
    held_out = is_dev(keys, 0.1, seed=0)
    assert not set(keys[held_out].ravel()) & set(keys[~held_out].ravel())
    assert 90 <= held_out.sum() <= 100
    assert (is_dev(keys, 0.1, seed=1) != held_out).any()


def test_repeats_name_their_first_row():
    keys = np.array([[1, 2], [3, 4], [1, 2], [2, 1], [3, 4]], "<u8")
    assert first_occurrences(keys).tolist() == [0, 1, 0, 3, 1]


def test_shards_have_equal_mass_and_every_row_once():
    lengths = np.random.default_rng(0).geometric(0.02, 5000)
    shards = balanced_shards(lengths, 16, seed=0)
    assert sorted(np.concatenate(shards).tolist()) == list(range(5000))
    masses = [lengths[shard].sum() for shard in shards]
    assert max(masses) - min(masses) <= lengths.max()
