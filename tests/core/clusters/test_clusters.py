"""Clusters against the rule, written down in ten lines, and against union-find."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbert_core.clusters.components import find_chained_component, label_components
from sbert_core.clusters.duplicate_groups import collapse_groups, expand_decision
from sbert_core.clusters.keep_rules import UnknownKeepRule, parse_rules, rank_rows
from sbert_core.clusters.labels import REASONS, ClusterLabels, count_by_size
from sbert_core.clusters.leaders import NO_WITNESS, Decision, select_leaders
from sbert_core.clusters.topics import TopicModel, extract_keywords
from sbert_core.join.bounded import Edges


def edges_of(pairs):
    a, b, cos = zip(*pairs, strict=True) if pairs else ((), (), ())
    return Edges(np.array(a, np.int32), np.array(b, np.int32), np.array(cos, np.float32))


def the_rule(edges, rank, num_protected=0):
    """In order, keep a row unless one of its neighbours is kept already."""
    near = {}
    for a, b, cos in zip(edges.a.tolist(), edges.b.tolist(), edges.cos.tolist(), strict=True):
        near.setdefault(a, {})[b] = cos
        near.setdefault(b, {})[a] = cos
    kept, witness = set(), {}
    for row in np.argsort(rank).tolist():
        before = {other: cos for other, cos in near.get(row, {}).items() if other in kept}
        if before and rank[row] >= num_protected:
            witness[row] = min(before, key=lambda other: (-before[other], other))
        else:
            kept.add(row)
    return kept, witness


def random_edges(rng, num_rows, number):
    pairs = {tuple(sorted(rng.choice(num_rows, 2, replace=False).tolist())) for _ in range(number)}
    cos = np.round(rng.uniform(0.9, 1, len(pairs)), 2)  # few values: many ties
    return edges_of([(a, b, c) for (a, b), c in zip(sorted(pairs), cos, strict=True)])


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    num_rows=st.integers(2, 40),
    density=st.floats(0, 4),
    protected=st.integers(0, 3),
)
def test_expand_decision_members_are_decided_as_if_each_had_all_edges(
    seed, num_rows, density, protected
):
    """Contracted groups give what the rule gives on the whole graph."""
    rng = np.random.default_rng(seed)
    single = random_edges(rng, num_rows, int(density * num_rows))
    # The first three rows become groups of several equal rows, numbered in between.
    sizes = np.ones(num_rows, int)
    sizes[:3] = rng.integers(1, 5, min(3, num_rows))
    total = int(sizes.sum())
    shuffled = rng.permutation(total)
    members = np.split(shuffled, np.cumsum(sizes)[:-1])
    groups = [np.sort(own) for own in members if len(own) > 1]
    whole, standing = [], []
    for a, b, cos in zip(single.a, single.b, single.cos, strict=True):
        whole += [(x, y, cos) for x in members[a] for y in members[b]]
        standing.append((members[a][0], members[b][0], cos))
    whole += [
        (own[i], own[j], 1.0)
        for own in groups
        for i in range(len(own))
        for j in range(i + 1, len(own))
    ]
    rank = rng.permutation(total).astype(np.int32)
    protected = min(protected, total)
    kept, witness = the_rule(edges_of(whole), rank, protected)
    collapsed = collapse_groups(edges_of(standing), groups, rank, protected)
    found = expand_decision(
        select_leaders(collapsed, rank, protected), collapsed, groups, rank, protected
    )
    assert set(np.flatnonzero(found.is_kept).tolist()) == kept
    removed = np.flatnonzero(~found.is_kept).tolist()
    assert {row: int(found.witness[row]) for row in removed} == witness
    near = {frozenset(pair): cos for *pair, cos in whole}
    for row in removed:
        assert found.cos[row] == np.float32(near[frozenset((row, witness[row]))])


def chain(number, cos=0.95):
    return edges_of([(n, n + 1, cos) for n in range(number - 1)])


def test_select_leaders_of_a_chain_keeps_every_other_row_and_of_a_star_its_centre_or_its_rays():
    decision = select_leaders(chain(7), np.arange(7, dtype=np.int32))
    assert np.flatnonzero(decision.is_kept).tolist() == [0, 2, 4, 6]
    assert decision.witness.tolist() == [NO_WITNESS, 0, NO_WITNESS, 2, NO_WITNESS, 4, NO_WITNESS]
    star = edges_of([(0, ray, 0.9 + ray / 100) for ray in range(1, 6)])
    assert (
        select_leaders(star, np.arange(6, dtype=np.int32)).is_kept.tolist() == [True] + [False] * 5
    )
    last = select_leaders(star, np.arange(6, dtype=np.int32)[::-1].copy())
    assert last.is_kept.tolist() == [False] + [True] * 5
    assert last.witness[0] == 5 and last.cos[0] == np.float32(0.95)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), num_rows=st.integers(2, 60), density=st.floats(0, 3))
def test_label_components_equal_union_find_and_nest_over_thresholds(seed, num_rows, density):
    edges = random_edges(np.random.default_rng(seed), num_rows, int(density * num_rows))

    def united(threshold):
        root = list(range(num_rows))

        def top(row):
            while root[row] != row:
                row = root[row]
            return row

        for a, b, cos in zip(edges.a.tolist(), edges.b.tolist(), edges.cos.tolist(), strict=True):
            if cos >= threshold:
                low, high = sorted((top(a), top(b)))
                root[high] = low
        return np.array([top(row) for row in range(num_rows)])

    last = np.zeros(num_rows, int)
    for threshold in np.float32([0.9, 0.95, 0.99]):
        reach = edges.cos >= threshold
        label = label_components(Edges(edges.a[reach], edges.b[reach], edges.cos[reach]), num_rows)
        np.testing.assert_array_equal(label, united(threshold))
        if threshold > np.float32(0.9):  # rows together now were together below
            for row in range(num_rows):
                assert last[row] == last[label[row]]
        last = label


def test_find_chained_component_ignores_a_large_group_of_equal_rows():
    number = 400
    label = label_components(chain(number), number)
    decision = select_leaders(chain(number), np.arange(number, dtype=np.int32))
    found = find_chained_component(label, decision.canonical, 0.01)
    assert found is not None and (found.rows, found.label) == (number, 0)
    assert find_chained_component(label, decision.canonical, 1.0) is None
    assert find_chained_component(np.zeros(number, int), np.zeros(number, int), 0.01) is None


def test_rank_rows_by_rules_equals_sorting_by_hand():
    table = pa.table(
        {
            "num_chars": [5, 9, 9, 9, 1, 9],
            "date": ["2024-01-02", "2023-05-05", None, "2024-09-09", "2020-01-01", "2024-09-09"],
            "source": ["b", "a", "a", "c", "a", "c"],
        }
    )
    ids = pa.array([30, 10, 20, 60, 50, 40])

    def order(text, first=()):
        place = rank_rows(parse_rules(text), table, ids, first)
        return [ids[n].as_py() for n in np.argsort(place).tolist()]

    assert order("") == [10, 20, 30, 40, 50, 60]
    assert order("longest") == [10, 20, 40, 60, 30, 50]
    assert order("longest,newest:date") == [40, 60, 10, 20, 30, 50]
    assert order("source=c>a,oldest:date") == [40, 60, 50, 10, 20, 30]
    assert order("shortest", [np.array([0, 0, 0, 1, 0, 0], bool)])[0] == 60
    for word in ("best", "newest", "newest:", "source=", "source=a>a", "source=a>", ","):
        with pytest.raises(UnknownKeepRule) as error:
            parse_rules(word)
        assert error.value.rule == word.split(",")[0]


def test_cluster_labels_name_clusters_by_their_smallest_row():
    edges = edges_of([(0, 3, 1.0), (3, 4, 0.95)])
    decision = select_leaders(edges, np.array([4, 3, 2, 0, 1], np.int32))
    assert np.flatnonzero(decision.is_kept).tolist() == [1, 2, 3]
    is_protected, was_kept = np.zeros(5, bool), np.zeros(5, bool)
    is_protected[1] = was_kept[2] = True
    made = ClusterLabels.from_decision(decision, decision.canonical, is_protected, was_kept)
    assert made.name.tolist() == [0, 1, 2, 0, 0]
    assert made.size.tolist() == [3, 1, 1, 3, 3]
    words = [REASONS[n] for n in made.reason]
    assert words == ["duplicate", "protected", "kept before", "representative", "near-duplicate"]
    assert count_by_size(made.size, made.name) == {"1": 2, "3-4": 1}
    assert isinstance(decision, Decision)


def test_topic_model_finds_the_groups_and_their_words():
    rng = np.random.default_rng(0)
    centre = np.eye(3, 8, dtype=np.float32)
    own = rng.integers(0, 3, 300)
    rows = centre[own] + 0.05 * rng.standard_normal((300, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    topic = TopicModel.fit(rows, 3, seed=0).assign(rows)
    pairs = set(zip(own.tolist(), topic.tolist(), strict=True))
    assert len(pairs) == 3  # one topic for each group
    words = extract_keywords(
        [
            ["the cat sat", "a cat and the dog", "the cat"],
            ["the ship sails", "ship to the sea", "the old ship"],
            ["the sun", "sun over the hill", "hot sun"],
        ]
    )
    assert [own[0] for own in words] == ["cat", "ship", "sun"]
    assert not any("the" in own for own in words)
