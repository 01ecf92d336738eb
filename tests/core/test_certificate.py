"""The certificate of an approximate join: does its interval hold the truth as often as it says?"""

import numpy as np
import pytest

from sbert_core.neighbours.cells import Cells, margin_for, num_cells
from sbert_core.neighbours.certificate import (
    Missed,
    bands_of,
    certified,
    num_bands,
    sampled_rows,
    strata_of,
)

NUM_ROWS = 20_000
SEEDS = 200


def graph(rng, num_rows):
    """Groups of rows that all resemble each other: most of one row, some of hundreds."""
    sizes = []
    while sum(sizes) < num_rows:
        kind = rng.random()
        sizes.append(1 if kind < 0.85 else 2 + rng.geometric(0.4) if kind < 0.995 else 150)
    first, a, b = 0, [], []
    for size in sizes:
        one, other = np.triu_indices(size, 1)
        a.append(one + first)
        b.append(other + first)
        first += size
    return np.concatenate(a), np.concatenate(b), first


def missed_pairs(rng, kind, a, b, num_rows, share):
    if kind == "pairs":
        return rng.random(len(a)) < share
    if kind == "cells":  # each row sits in one of two cells; pairs across are missed now and then
        cell = rng.integers(0, 2, num_rows)
        return (cell[a] != cell[b]) & (rng.random(len(a)) < 2 * share)
    is_lonely = rng.random(num_rows) < share  # rows for which nothing at all was found
    return is_lonely[a] | is_lonely[b]


@pytest.mark.parametrize("share", [0.002, 0.02])
@pytest.mark.parametrize("kind", ["pairs", "cells", "rows"])
def test_the_interval_holds_the_truth(kind, share):
    held = lower = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng((seed, 7))
        if seed % 20 == 0:
            a, b, num_rows = graph(rng, NUM_ROWS)
        is_missed = missed_pairs(rng, kind, a, b, num_rows, share)
        ends = np.concatenate([a[~is_missed], b[~is_missed]])
        degree = np.bincount(ends, minlength=num_rows)
        sample = sampled_rows(degree, 1024, (seed,))
        lost_a, lost_b = a[is_missed], b[is_missed]
        row, partner = np.concatenate([lost_a, lost_b]), np.concatenate([lost_b, lost_a])
        seen = np.isin(row, sample.rows)
        order = np.argsort(row[seen], kind="stable")
        missed = Missed(row=row[seen][order], partner=partner[seen][order])
        found = int((~is_missed).sum())
        recall = certified(sample, degree, missed, found, found)
        truth = found / len(a)
        held += recall.low <= truth <= recall.high
        lower += recall.low <= truth
    assert held / SEEDS >= 0.93, f"{held} of {SEEDS}"
    assert lower / SEEDS >= 0.95, f"{lower} of {SEEDS}"


def test_a_whole_sample_leaves_no_doubt_and_none_leaves_some():
    degree = np.array([1, 1, 0, 0])
    sample = sampled_rows(degree, 10_000, (0,))
    assert sample.rows.tolist() == [0, 1, 2, 3] and sample.weight.tolist() == [1] * 4
    lost = Missed(row=np.array([2, 3]), partner=np.array([3, 2]))
    recall = certified(sample, degree, lost, 1, 2)
    assert (recall.value, recall.low, recall.high) == (0.5, 0.5, 0.5)
    many = np.zeros(10_000, int)
    many[:2000] = 1
    few = sampled_rows(many, 500, (0,))
    nobody = Missed(row=np.empty(0, int), partner=np.empty(0, int))
    recall = certified(few, many, nobody, 1000, 100)
    assert recall.value == recall.high == 1 and 0.5 < recall.low < 1


def test_strata_and_bands():
    assert strata_of(np.array([0, 1, 2, 3, 4, 7, 8])).tolist() == [0, 1, 2, 2, 3, 3, 4]
    assert num_bands(0.9) == 5 and num_bands(1.0) == 1
    cos = np.float32([0.9, 0.9199, 0.921, 0.999, 1.0])
    assert bands_of(cos, 0.9).tolist() == [0, 0, 1, 4, 4]


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.3, 2.0])
def test_a_pair_is_met_if_its_margin_says_so(margin):
    """Homes and visits, by hand: all cosines with all centroids."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 12)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cells = Cells.of(rows, 20, seed=0)
    near = rows @ cells.centroids.T
    home = near.argmax(axis=1)
    np.testing.assert_array_equal(cells.homes(rows), home)
    places = np.zeros((300, 20), bool)
    places[np.arange(300), home] = True
    visitors, visited = cells.visits(rows, 0.0, margin)
    assert not places[visitors, visited].any()
    places[visitors, visited] = True
    a, b = np.triu_indices(300, 1)
    is_met = places[a, home[b]] | places[b, home[a]]
    needed = cells.needed_margins(rows[a], rows[b])
    sure = np.abs(needed - margin) > 1e-5
    np.testing.assert_array_equal((needed <= margin)[sure], is_met[sure])
    if margin == 2.0:
        assert is_met.all()


def test_the_margin_meets_the_share_asked_for():
    margin, weight = np.array([0.3, 0.0, 0.1, 0.2]), np.array([1.0, 5.0, 2.0, 2.0])
    assert margin_for(margin, weight, 0.5) == 0.0
    assert margin_for(margin, weight, 0.9) == 0.2
    assert margin_for(margin, weight, 1.0) == 0.3
    assert margin_for(margin[:0], weight[:0], 0.9) == 0.0
    assert num_cells(1) == 1 and num_cells(1_000_000) == 2000
