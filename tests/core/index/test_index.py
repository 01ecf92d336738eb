"""Indexes, shards and their recall against brute force."""

import hashlib
from dataclasses import replace
from itertools import product

import faiss
import hnswlib
import numpy as np
import pyarrow as pa
import pytest
from support.speed import cases

from sbert_core.index.builder import ShardBuilder
from sbert_core.index.filter import row_mask
from sbert_core.index.hits import NO_ROW, Hits, exact_search, merge_hits
from sbert_core.index.kinds import IndexKind
from sbert_core.index.recall import estimate_recall, query_recalls
from sbert_core.index.rounding import VectorDeduper
from sbert_core.index.shard import Shard
from sbert_core.index.shard_rows import ShardRows

DIM = 32
KINDS = (
    "hnsw",
    "faiss:Flat",
    "faiss:HNSW16",
    "faiss:SQ8",
    "faiss:PQ8",
    "faiss:IVF16,Flat",
    "faiss:IVF16,PQ8",
    "faiss:OPQ8,IVF16,PQ8",
)
QUICK_KINDS = ("hnsw", "faiss:Flat", "faiss:IVF16,PQ8")
SLOW_OPQ = [*KINDS[:-1], pytest.param(KINDS[-1], marks=pytest.mark.slow)]  # its rotation is trained


def units(number, seed=0, dim=DIM):
    """Vectors in clumps, as texts have them."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(40, dim))
    vectors = centres[rng.integers(0, 40, number)] + 0.5 * rng.normal(size=(number, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def rows_table(number, first=0):
    ids = [f"r{n:06d}" for n in range(first, first + number)]
    return pa.table({"id": ids, "lang": ["ab"[n % 2] for n in range(first, first + number)]})


def built(word, vectors, folder, held=0):
    kind = IndexKind.parse(word, 16, 100)
    trained = None
    if kind.factory is not None:
        trained = folder / "trained"
        faiss.write_index(kind.train(vectors), str(trained))
    builder = ShardBuilder(kind.create(vectors.shape[1], len(vectors), 7, trained), DIM)
    for first in range(0, len(vectors), 500):
        part = vectors[first : first + 500]
        builder.add(rows_table(len(part), first), part)
    paths = [folder / name for name in ("index", "rows", "own")]
    builder.write(*paths)
    return Shard.read(kind.read(paths[0], DIM), *paths[1:]), kind


def numbers(shard, hits):
    """Found rows as numbers of the vectors they were made of."""
    ids = [int(name[1:]) for name in shard.rows["id"].to_pylist()]
    return np.where(hits.rows == NO_ROW, NO_ROW, np.array(ids)[hits.rows])


@pytest.mark.parametrize("word", SLOW_OPQ)
def test_shards_find_what_brute_force_finds(word, tmp_path):
    vectors, queries = units(2000), units(50, seed=1)
    vectors[700:900] = vectors[3]  # copies
    vectors[900:905] = vectors[4] + 1e-6 * units(5, seed=2)  # nearly copies
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    shard, kind = built(word, vectors, tmp_path)
    assert shard.index.num_nodes == 2000 - 200 - 5
    hits = shard.search(queries, 10, kind.efforts()[-1])
    exact = exact_search(queries, vectors, 10)
    assert query_recalls(hits, exact, 10).mean() > 0.97
    own = np.einsum("qkd,qd->qk", vectors[numbers(shard, hits)], queries)
    np.testing.assert_allclose(hits.cos, own, atol=1e-6)
    assert (np.diff(hits.cos, axis=1) <= 0).all()
    assert all(len(set(row)) == 10 for row in hits.rows.tolist())


@pytest.mark.parametrize(
    ("word", "share"),
    cases(product(KINDS, [2, 50]), lambda word, share: share == 50 and word in QUICK_KINDS),
)
def test_filters_leave_the_best_of_what_is_wanted(word, share, tmp_path):
    vectors, queries = units(1500), units(30, seed=1)
    shard, kind = built(word, vectors, tmp_path)
    wanted = np.arange(shard.num_rows) % share == 0
    hits = shard.search(queries, 8, kind.efforts()[-1], mask=wanted)
    found = numbers(shard, hits)
    allowed = numbers(shard, Hits(hits.cos, np.flatnonzero(wanted)[None]))[0]
    assert np.isin(found, allowed).all()
    exact = exact_search(queries, vectors[allowed], 8)
    assert query_recalls(hits, exact, 8).mean() > 0.97


def test_search_thin_graph_with_hidden_nodes_finds_every_other_node():
    """Some queries reach fewer nodes than they ask for, and then all but hidden ones count."""
    vectors, queries = units(400), units(20, seed=1)
    index = IndexKind.parse("hnsw", 2, 10).create(DIM, len(vectors), 7, None)
    index.add(vectors)
    hidden = np.arange(0, 400, 3)
    index.hide(hidden)
    live = np.setdiff1d(np.arange(400), hidden)
    some = np.arange(400) % 2 == 0
    for allowed, hits in (
        (live, index.search(queries, 400, 10, 1)),
        (live[some[live]], index.search_among(queries, 400, 10, some)),
    ):
        exact = exact_search(queries, vectors[allowed], len(allowed))
        np.testing.assert_array_equal(np.sort(hits.rows), np.tile(allowed, (20, 1)))
        np.testing.assert_allclose(hits.cos, exact.cos, atol=1e-5)


@pytest.mark.parametrize("word", KINDS)
def test_dead_rows_are_not_found_and_k_may_exceed_the_rows(word, tmp_path):
    vectors = units(400)
    vectors[100:150] = vectors[5]
    shard, kind = built(word, vectors, tmp_path)
    dead = np.zeros(400, bool)
    dead[[n for n, i in enumerate(shard.rows["id"].to_pylist()) if 100 <= int(i[1:]) < 300]] = True
    rows = replace(ShardRows.read(tmp_path / "rows"), is_dead=dead)
    left = Shard(kind.read(tmp_path / "index", DIM), rows, np.load(tmp_path / "own"))
    hits = left.search(vectors[[5, 120]], 1000, kind.efforts()[-1])
    for row in numbers(shard, hits).tolist():
        found = [number for number in row if number != NO_ROW]
        assert len(found) <= 200 == left.num_live
        assert not [number for number in found if 100 <= number < 300]
        assert found[0] == 5


def test_plain_files_open_in_their_libraries(tmp_path):
    vectors = units(600)
    (tmp_path / "h").mkdir(), (tmp_path / "f").mkdir()
    built("hnsw", vectors, tmp_path / "h")
    graph = hnswlib.Index("ip", DIM)
    graph.load_index(str(tmp_path / "h" / "index"))
    assert graph.knn_query(vectors[17], 1)[0][0, 0] == 17
    built("faiss:IVF16,Flat", vectors, tmp_path / "f")
    assert faiss.read_index(str(tmp_path / "f" / "index")).search(vectors[17:18], 1)[1][0, 0] == 17


@pytest.mark.parametrize("word", ["hnsw", "faiss:IVF16,PQ8", "faiss:HNSW16"])
def test_same_rows_give_the_same_files(word, tmp_path):
    digests = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        built(word, units(800), tmp_path / name)
        files = [tmp_path / name / part for part in ("index", "rows", "own")]
        digests.append([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
    assert digests[0] == digests[1]


def test_nodes_are_numbered_by_first_sight():
    vectors = units(6)
    deduper = VectorDeduper()
    first, new = deduper.assign_nodes(vectors[[0, 1, 0, 2]])
    assert (first.tolist(), new.tolist()) == ([0, 1, 0, 2], [0, 1, 3])
    second, new = deduper.assign_nodes(vectors[[2, 3]])
    assert (second.tolist(), new.tolist(), len(deduper)) == ([2, 3], [1], 4)


def test_ties_go_to_the_smaller_row_however_parts_come():
    cos = np.array([[0.5, 0.5, 0.9]], np.float32)
    parts = [Hits(cos, np.array([[7, 2, 4]])), Hits(cos, np.array([[1, 9, 3]]))]
    for order in (parts, parts[::-1]):
        best = merge_hits(order, 4)
        assert best.rows.tolist() == [[3, 4, 1, 2]]


def test_recall_counts_hits_as_good_as_the_last():
    exact = Hits(
        np.array([[0.9, 0.8, 0.7], [0.9, 0.5, -np.inf]]), np.array([[0, 1, 2], [3, 4, -1]])
    )
    found = Hits(
        np.array([[0.9, 0.7, 0.6], [0.9, 0.5, -np.inf]]), np.array([[0, 9, 8], [3, 4, -1]])
    )
    assert query_recalls(found, exact, 3).tolist() == [2 / 3, 1.0]
    assert query_recalls(found, exact, 2).tolist() == [0.5, 1.0]


@pytest.mark.slow
def test_intervals_hold_the_true_recall_in_95_of_100_samples():
    """An index that misses on purpose, exact search over everything, 100 seeds."""
    vectors = units(4000)
    kind = IndexKind(factory="IVF64,Flat")
    index = kind.train(vectors)
    index.add(vectors)
    index.nprobe = 2
    cos, nodes = index.search(vectors, 10)
    recalls = query_recalls(Hits(cos, nodes), exact_search(vectors, vectors, 10), 10)
    true = recalls.mean()
    assert 0.6 < true < 0.99
    covered = 0
    for seed in range(100):
        sample = np.random.default_rng(seed).choice(len(vectors), 300, replace=False)
        found = estimate_recall(recalls[sample], 10)
        covered += found.low <= true <= found.high
    assert covered >= 90


@pytest.mark.slow
def test_a_repeated_text_does_not_spoil_the_others(tmp_path):
    """20,000 copies of one text among 20,000 others: all found, and the graph has no copies."""
    others = units(20_000)
    vectors = np.concatenate([np.repeat(others[:1], 20_000, 0), others])
    kind = IndexKind.parse("hnsw", 16, 60)
    builder = ShardBuilder(kind.create(DIM, len(vectors), 7, None), DIM)
    builder.add(rows_table(len(vectors)), vectors)
    assert builder.index.num_nodes == 20_000
    shard = builder.to_shard()
    queries = units(300, seed=5)
    exact = exact_search(queries, vectors, 10)
    assert query_recalls(shard.search(queries, 10, 128), exact, 10).mean() > 0.98
    copies = shard.search(others[:1], 50, 128)
    assert (copies.cos > 1 - 1e-6).all()
    assert shard.rows["id"].take(pa.array(copies.rows[0])).to_pylist() == [
        f"r{n:06d}" for n in range(50)
    ]


def test_conditions_choose_rows():
    rows = pa.table({"lang": ["a", "b", "a=b"], "year": [1, 2, None]})
    assert row_mask(rows, "lang = 'a'").tolist() == [True, False, False]
    assert row_mask(rows, "lang = 'a=b' or year >= 2").tolist() == [False, True, True]
    with pytest.raises(ValueError, match="'x'"):
        row_mask(rows, "x == 1")
    with pytest.raises(ValueError, match="lang"):
        row_mask(rows, "lang > 3")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("flat", "kind 'flat' is unknown"),
        ("faiss:", "unknown"),
        ("faiss:IDMap,Flat", "ids are kept beside"),
        ("faiss:Nonsense", r"cannot be made for 32 dimensions"),
        ("faiss:PQ7", r"cannot be made for 32 dimensions|cannot be trained"),
    ],
)
def test_kinds_that_do_not_exist_are_refused(word, message):
    with pytest.raises(ValueError, match=message):
        IndexKind.parse(word, 16, 100).train(units(300))


def test_cells_are_no_more_than_rows():
    kind = IndexKind.parse("faiss:IVF4096,PQ8", 16, 100)
    assert kind.fit_to(100_000) == kind
    assert kind.fit_to(400).factory == "IVF10,PQ8"
