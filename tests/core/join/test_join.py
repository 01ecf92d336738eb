"""The exact join against brute force, and leaders against the rule."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbert_core.clusters.leaders import NO_WITNESS, select_leaders
from sbert_core.join import bounded as join
from sbert_core.join.bounded import Edges, JoinBlock, PcaRotation, cosine_join, paired_cosines

# -- join ------------------------------------------------------------------------------------------


def brute(a, b, threshold, is_same=False):
    """Every pair by its float64 cosine."""
    places = [(i, j) for i in range(len(a)) for j in range(len(b)) if not is_same or i < j]
    if not places:
        return {}
    rows = np.array(places)
    cos = paired_cosines(a[rows[:, 0]], b[rows[:, 1]])
    reach = np.flatnonzero(cos >= np.float32(threshold)).tolist()
    return {places[n]: float(cos[n]) for n in reach}


def found(a, b, threshold, rotation, is_same=False):
    pairs = {}
    for edges in cosine_join(
        JoinBlock.build(a, rotation), JoinBlock.build(b, rotation), threshold, is_same=is_same
    ):
        for i, j, cos in zip(edges.a.tolist(), edges.b.tolist(), edges.cos.tolist(), strict=True):
            assert (i, j) not in pairs
            pairs[i, j] = cos
    return pairs


def rows_of(rng, number, dim, kind):
    vectors = rng.standard_normal((number, dim))
    if kind == "groups":
        vectors = vectors[rng.integers(0, max(1, number // 4), number)] + 0.1 * vectors
    elif kind == "copies":
        vectors = vectors[rng.integers(0, min(3, number), number)]
    elif kind == "one direction":
        vectors = vectors[:1] + 1e-4 * vectors
    elif kind == "chain":
        angles = np.deg2rad(15) * np.arange(number)
        vectors[:] = 0
        vectors[:, 0], vectors[:, 1] = np.cos(angles), np.sin(angles)
    return (vectors * rng.uniform(0.5, 2, (number, 1))).astype(np.float32)


KINDS = ("random", "groups", "copies", "one direction", "chain")


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    dim=st.integers(2, 40),
    kind=st.sampled_from(KINDS),
    threshold=st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, 0.0, 0.9, 1.0])),
    tile=st.sampled_from([3, 7, 1024]),
)
def test_cosine_join_of_any_blocks_equals_brute_force(seed, sizes, dim, kind, threshold, tile):
    rng = np.random.default_rng(seed)
    a, b = (rows_of(rng, size, dim, kind) for size in sizes)
    rotation = PcaRotation.fit(np.concatenate([a, b]), threshold)
    patch = pytest.MonkeyPatch()
    with patch.context() as change:
        change.setattr(join, "TILE_ROWS", tile)
        assert found(a, b, threshold, rotation) == brute(a, b, threshold)
        assert found(a, a, threshold, rotation, is_same=True) == brute(
            a, a, threshold, is_same=True
        )


@pytest.mark.parametrize("lead", [1, 2, 15])
def test_cosine_join_any_number_of_leading_dimensions_finds_all(lead):
    rng = np.random.default_rng(0)
    rows = rows_of(rng, 200, 16, "groups")
    rotation = replace(PcaRotation.fit(rows, 0.9), num_leading=lead)
    assert found(rows, rows, 0.9, rotation, is_same=True) == brute(rows, rows, 0.9, is_same=True)


def test_cosine_join_basis_of_other_rows_misses_nothing():
    rng = np.random.default_rng(0)
    rows, others = rows_of(rng, 200, 16, "groups"), rows_of(rng, 50, 16, "random")
    rotation = PcaRotation.fit(others, 0.8)
    assert found(rows, rows, 0.8, rotation, is_same=True) == brute(rows, rows, 0.8, is_same=True)


def test_paired_cosines_equal_rows_of_any_length_give_one():
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((500, 384)) * rng.uniform(1e-3, 1e3, (500, 1))).astype(np.float32)
    assert (paired_cosines(rows, rows) == 1).all()
    np.testing.assert_array_equal(
        paired_cosines(rows[:-1], rows[1:]), paired_cosines(rows[1:], rows[:-1])
    )


# -- leaders ---------------------------------------------------------------------------------------


def by_the_rule(edges, rank, num_protected=0):
    near = [{} for _ in rank]
    for a, b, cos in zip(edges.a.tolist(), edges.b.tolist(), edges.cos.tolist(), strict=True):
        early, late = (a, b) if rank[a] < rank[b] else (b, a)
        near[late][early] = cos
    kept, witness = [None] * len(rank), [NO_WITNESS] * len(rank)
    for place, row in enumerate(np.argsort(rank).tolist()):
        before = [(-cos, other) for other, cos in near[row].items() if kept[other]]
        kept[row] = place < num_protected or not before
        if not kept[row]:
            witness[row] = min(before)[1]
    return kept, witness


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    num_rows=st.integers(1, 40),
    share=st.floats(0, 0.5),
    num_protected=st.integers(0, 5),
    rounds=st.sampled_from([0, 1, 3, 50]),
)
def test_select_leaders_random_edges_follow_the_rule(seed, num_rows, share, num_protected, rounds):
    rng = np.random.default_rng(seed)
    a, b = np.nonzero(np.triu(rng.random((num_rows, num_rows)) < share, 1))
    swap = rng.random(len(a)) < 0.5
    cos = rng.choice(np.float32([0.9, 0.95, 1.0]), len(a))
    edges = Edges(np.where(swap, b, a), np.where(swap, a, b), cos)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sbert_core.clusters.leaders.ROUNDS", rounds)
        rank = rng.permutation(num_rows)
        decision = select_leaders(edges, rank, num_protected)
    kept, witness = by_the_rule(edges, rank, num_protected)
    assert decision.is_kept.tolist() == kept
    assert decision.witness.tolist() == witness
    removed = ~decision.is_kept
    assert decision.is_kept[decision.witness[removed]].all()
    assert (decision.cos[removed] >= np.float32(0.9)).all()


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_select_leaders_of_a_chain_removes_every_second_row_only(order):
    """0, 15, 30 ... degrees at the cosine of 15: components would keep one row of them all."""
    number = 5000
    rank = np.arange(number)
    if order == "backward":
        rank = rank[::-1].copy()
    elif order == "shuffled":
        rank = np.random.default_rng(0).permutation(number)
    cos = np.full(number - 1, np.cos(np.deg2rad(15)), np.float32)
    edges = Edges(np.arange(number - 1), np.arange(1, number), cos)
    decision = select_leaders(edges, rank)
    kept, witness = by_the_rule(edges, rank)
    assert decision.is_kept.tolist() == kept and decision.witness.tolist() == witness
    if order != "shuffled":
        assert decision.is_kept.sum() == number / 2


def test_select_leaders_of_a_star_and_of_nothing():
    star = Edges(np.zeros(9, np.int64), np.arange(1, 10), np.full(9, 0.9, np.float32))
    assert select_leaders(star, np.arange(10)).is_kept.tolist() == [True] + [False] * 9
    centre_last = Edges(np.full(9, 9), np.arange(9), np.full(9, 0.9, np.float32))
    assert select_leaders(centre_last, np.arange(10)).is_kept.tolist() == [True] * 9 + [False]
    nothing = Edges(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    assert (
        select_leaders(nothing, np.arange(3)).is_kept.all()
        and select_leaders(nothing, np.arange(0)).is_kept.size == 0
    )
