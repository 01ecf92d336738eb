"""The certificate of an approximate join: does its interval hold the truth as often as stated?"""

from itertools import product

import numpy as np
import pytest
from support.speed import cases

from sbert_core.join.certificate import (
    MissedPairs,
    Population,
    cosine_bands,
    degree_strata,
    draw_sample,
    estimate_recall,
    num_bands,
)
from sbert_core.join.ivf import NO_PROBES, IvfPartition, default_num_cells, margin_for_recall

NUM_ROWS = 6000
SEEDS = 200


def graph(rng, num_rows):
    """Groups of rows that all resemble each other: most of one row, some of hundreds."""
    sizes = []
    while sum(sizes) < num_rows:
        kind = rng.random()
        sizes.append(1 if kind < 0.85 else 2 + rng.geometric(0.4) if kind < 0.995 else 60)
    first, a, b = 0, [], []
    for size in sizes:
        one, other = np.triu_indices(size, 1)
        a.append(one + first)
        b.append(other + first)
        first += size
    return np.concatenate(a), np.concatenate(b), first


def repeats(rng, kind, num_rows):
    """How many equal rows stand behind each distinct one."""
    size = np.ones(num_rows, np.int64)
    if kind == "few":
        is_repeated = rng.random(num_rows) < 0.2
        size[is_repeated] += rng.geometric(0.3, is_repeated.sum())
    elif kind == "many":  # some groups of hundreds, up to 1,000
        is_repeated = rng.random(num_rows) < 0.05
        size[is_repeated] += np.minimum(999, rng.pareto(0.8, is_repeated.sum())).astype(np.int64)
    return size


def missed_pairs(rng, kind, a, b, num_rows, share):
    if kind == "pairs":
        return rng.random(len(a)) < share
    if kind == "cells":  # each row sits in one of two cells; pairs across are missed now and then
        cell = rng.integers(0, 2, num_rows)
        return (cell[a] != cell[b]) & (rng.random(len(a)) < 2 * share)
    is_lonely = rng.random(num_rows) < share  # rows for which nothing at all was found
    return is_lonely[a] | is_lonely[b]


def degrees(a, b, size):
    """Rows found for each row, those behind a distinct one included."""
    ends = np.bincount(a, size[b], len(size)) + np.bincount(b, size[a], len(size))
    return ends.astype(np.int64)


def lost_by(sample, a, b):
    """Missed pairs, at each end that was drawn."""
    is_drawn = np.zeros(len(sample.probability), bool)
    is_drawn[sample.rows] = True
    row, partner = np.concatenate([a, b]), np.concatenate([b, a])
    return MissedPairs(row=row[is_drawn[row]], partner=partner[is_drawn[row]])


@pytest.mark.parametrize(
    ("kind", "repeated", "share"),
    cases(
        product(["pairs", "cells", "rows"], ["none", "few", "many"], [0.02]),
        lambda kind, repeated, share: (kind, repeated) == ("pairs", "few"),
    )
    + cases(product(["pairs", "cells", "rows"], ["none"], [0.002]), lambda *case: False),
)
def test_certificate_of_written_pairs_holds_the_truth(kind, share, repeated):
    held = lower = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng((seed, 7))
        if seed % 20 == 0:
            a, b, num_rows = graph(rng, NUM_ROWS)
            size = repeats(rng, repeated, num_rows)
            written = size[a] * size[b]
        is_missed = missed_pairs(rng, kind, a, b, num_rows, share)
        everyone = Population(size, degrees(a[~is_missed], b[~is_missed], size))
        sample = draw_sample(everyone, 512, (seed,))
        missed = lost_by(sample, a[is_missed], b[is_missed])
        found = int(written[~is_missed].sum())
        recall = estimate_recall(sample, everyone, missed, found, found)
        truth = found / written.sum()
        held += recall.low <= truth <= recall.high
        lower += recall.low <= truth
        assert (recall.low <= truth) == (recall.most_missed >= written[is_missed].sum() - 1e-6)
    assert held / SEEDS >= 0.93, f"{held} of {SEEDS}"
    assert lower / SEEDS >= 0.95, f"{lower} of {SEEDS}"


def test_certificate_every_row_looked_up_leaves_no_doubt():
    everyone = Population(np.array([1, 1, 3, 2]), np.array([1, 1, 0, 0]))
    sample = draw_sample(everyone, 10_000, (0,))
    assert sample.rows.tolist() == [0, 1, 2, 3] and sample.probability.tolist() == [1] * 4
    recall = estimate_recall(sample, everyone, lost_by(sample, np.array([2]), np.array([3])), 2, 2)
    # One pair of vectors was missed, and six pairs of rows with it.
    assert (recall.missed, recall.most_missed) == (6, 6)
    assert (recall.value, recall.low, recall.high) == (0.25, 0.25, 0.25)


def test_certificate_no_miss_in_a_sample_leaves_some_doubt():
    degree = np.zeros(10_000, int)
    degree[:2000] = 1
    everyone = Population(np.ones(10_000, int), degree)
    sample = draw_sample(everyone, 500, (0,))
    nobody = np.empty(0, int)
    recall = estimate_recall(sample, everyone, MissedPairs(row=nobody, partner=nobody), 1000, 100)
    assert recall.value == recall.high == 1 and 0.5 < recall.low < 1


def test_sample_a_large_group_is_always_looked_up():
    size = np.ones(100_000, int)
    size[::10_000] = 1000
    everyone = Population(size, np.zeros(100_000, int))
    for seed in range(20):
        sample = draw_sample(everyone, 1000, (seed,))
        assert set(range(0, 100_000, 10_000)) <= set(sample.rows.tolist())
        assert 850 < len(sample.rows) < 1150
    assert abs(sample.probability.sum() - 1000) < 1e-6


def test_strata_and_bands():
    assert degree_strata(np.array([0, 1, 2, 3, 4, 7, 8])).tolist() == [0, 1, 2, 2, 3, 3, 4]
    assert num_bands(0.9) == 5 and num_bands(1.0) == 1
    cos = np.float32([0.9, 0.9199, 0.921, 0.999, 1.0])
    assert cosine_bands(cos, 0.9).tolist() == [0, 0, 1, 4, 4]


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.3, 2.0])
def test_partition_pair_is_met_at_its_required_margin(margin):
    """Home cells and probes by brute force: all cosines with all centroids."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 12)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cells = IvfPartition.fit(rows, 20, seed=0)
    near = rows @ cells.centroids.T
    home = near.argmax(axis=1)
    np.testing.assert_array_equal(cells.assign(rows), home)
    places = np.zeros((300, 20), bool)
    places[np.arange(300), home] = True
    probing, probed = cells.probe_cells(rows, 0.0, margin)
    assert not places[probing, probed].any()
    places[probing, probed] = True
    a, b = np.triu_indices(300, 1)
    is_met = places[a, home[b]] | places[b, home[a]]
    needed = cells.required_margins(rows[a], rows[b])
    sure = np.abs(needed - margin) > 1e-5
    np.testing.assert_array_equal((needed <= margin)[sure], is_met[sure])
    if margin == 2.0:
        assert is_met.all()


@pytest.mark.parametrize("seed", range(20))
def test_partition_probes_within_the_required_margin_meet_every_pair(seed):
    """To the last bit: of one pair at the border no less than of all."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((200, 7 + seed)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cells = IvfPartition.fit(rows, 15, seed=seed)
    home = cells.assign(rows)
    a, b = np.triu_indices(200, 1)
    needed = cells.required_margins(rows[a], rows[b])
    for n in rng.permutation(len(a))[:200]:
        places = np.zeros((200, cells.num_cells), bool)
        places[np.arange(200), home] = True
        if needed[n]:
            places[cells.probe_cells(rows, NO_PROBES, float(needed[n]))] = True
        assert places[a[n], home[b[n]]] or places[b[n], home[a[n]]]


def test_partition_row_as_near_to_two_cells_probes_both():
    cells = IvfPartition(np.eye(2, dtype=np.float32))
    between = np.full((1, 2), 0.5**0.5, np.float32)
    rows, probed = cells.probe_cells(between, NO_PROBES, 0.0)
    assert rows.tolist() == [0] and probed.tolist() == [1 - cells.assign(between)[0]]


def test_margin_for_recall_meets_the_share():
    margin, weight = np.array([0.3, 0.0, 0.1, 0.2]), np.array([1.0, 5.0, 2.0, 2.0])
    assert margin_for_recall(margin, weight, 0.5) == 0.0
    assert margin_for_recall(margin, weight, 0.9) == 0.2
    assert margin_for_recall(margin, weight, 1.0) == 0.3
    assert margin_for_recall(margin[:0], weight[:0], 0.9) == 0.0
    assert default_num_cells(1) == 1 and default_num_cells(1_000_000) == 2000
