"""Tasks of `sbert index` and `sbert search` as plain calls, against brute force."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_core.choices import Precision
from sbert_core.errors import TransientError
from sbert_core.index.hits import exact_search
from sbert_core.index.kinds import IndexKind
from sbert_core.vectors.row_ranges import RowRange
from workers.index.build import DEPTH, build_shard, train_index
from workers.index.job import IndexJob, RecallQueries, read_vectors
from workers.index.measure import exact_cosines, measure_shard, merge_cosines
from workers.index.search import SearchJob, encode_queries, search_shard
from workers.index.shard import open_shard

DIM, ROWS = 16, 300
NO_QUERIES = RecallQueries(np.empty((0, DIM), np.float32), np.empty((0, DIM), np.float32), {})


def unit_vectors(number, seed):
    vectors = np.random.default_rng(seed).normal(size=(number, DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two files of vectors with copies among them, all vectors, and all ids."""
    folder = tmp_path_factory.mktemp("vectors")
    vectors = unit_vectors(2 * ROWS, seed=0)
    vectors[40:60] = vectors[3]
    ids = [f"r{n:04d}" for n in range(2 * ROWS)]
    pieces = []
    for number in range(2):
        own = slice(number * ROWS, (number + 1) * ROWS)
        flat = pa.array(vectors[own].reshape(-1))
        columns = {
            "id": ids[own],
            "vector": pa.FixedSizeListArray.from_arrays(flat, DIM),
            "content_hash": pa.array([i.encode().ljust(16) for i in ids[own]], pa.binary(16)),
            "lang": ["ab"[n % 2] for n in range(ROWS)],
        }
        path = folder / f"part-{number}.parquet"
        pq.write_table(pa.table(columns), path)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        pieces.append(RowRange(path.name, sha256, ROWS))
    return folder, pieces, vectors, ids


def job_at(corpus, out, word="hnsw"):
    """Settings of a build into `out`; FAISS kinds are trained on all rows."""
    folder, pieces, *_ = corpus
    kind = IndexKind.parse(word, 16, 100)
    job = IndexJob(run="r", vectors=str(folder), out=str(out), folder="data/g", kind=kind, dim=DIM,
                   scale=None, seed=0, trained=None)  # fmt: skip
    if kind.factory is None:
        return job
    trained = train_index(job, [read_vectors(job, piece) for piece in pieces])
    return IndexJob(run="r", vectors=str(folder), out=str(out), folder="data/g", kind=kind, dim=DIM,
                    scale=None, seed=0, trained=trained.file)  # fmt: skip


def search_job(job, **changes):
    options = {"k": 5, "where": None, "columns": ("id", "lang"), "effort": job.kind.efforts()[-1]}
    return SearchJob(index=job.out, kind=job.kind, dim=DIM, **options | changes)


@pytest.mark.parametrize("word", ["hnsw", "faiss:IVF4,Flat", "faiss:SQ8"])
def test_search_shard_finds_what_brute_force_finds(word, corpus, tmp_path):
    _, pieces, vectors, ids = corpus
    job = job_at(corpus, tmp_path, word)
    built = build_shard(job, 3, pieces, NO_QUERIES, [8])
    assert (built.number, built.record.rows, built.record.live) == (3, 2 * ROWS, 2 * ROWS)
    assert built.record.nodes == 2 * ROWS - 20
    assert built.record.parts == tuple(piece.sha256 for piece in pieces)
    queries = unit_vectors(30, seed=1)
    hits = search_shard(search_job(job), built.record.files, [queries[:10], queries[10:]])
    exact = exact_search(queries, vectors, 5)
    np.testing.assert_allclose(hits.cos, exact.cos, atol=1e-5)
    assert hits.columns["id"] == [ids[row] for row in exact.rows.reshape(-1)]


def test_search_shard_filter_and_too_few_rows_leave_places_empty(corpus, tmp_path):
    _, pieces, vectors, ids = corpus
    job = job_at(corpus, tmp_path)
    built = build_shard(job, 0, [pieces[0].take(np.arange(6))], NO_QUERIES, [8])
    found = search_job(job, k=5, where="lang == 'a'")
    hits = search_shard(found, built.record.files, [vectors[:1]])
    assert hits.columns["lang"] == ["a", "a", "a", None, None]
    assert set(hits.columns["id"][:3]) == {ids[0], ids[2], ids[4]}
    assert np.isneginf(hits.cos[0, 3:]).all() and np.isfinite(hits.cos[0, :3]).all()


def test_exact_cosines_leave_held_rows_out_of_their_own_sample(corpus, tmp_path):
    _, pieces, vectors, _ = corpus
    held = np.array([5, 90])
    queries = RecallQueries(vectors[:7], vectors[held], {pieces[0].sha256: held})
    found = exact_cosines(job_at(corpus, tmp_path), pieces, queries)
    cos = vectors @ vectors.T
    np.testing.assert_allclose(found.inside, -np.sort(-cos[:7])[:, :DEPTH], atol=1e-6)
    others = np.setdiff1d(np.arange(2 * ROWS), held)
    np.testing.assert_allclose(found.held, -np.sort(-cos[held][:, others])[:, :DEPTH], atol=1e-6)


def test_build_shard_searches_for_held_rows_before_it_inserts_them(corpus, tmp_path):
    _, pieces, vectors, ids = corpus
    held = np.array([5, 90])
    queries = RecallQueries(vectors[:0], vectors[held], {pieces[0].sha256: held})
    job = job_at(corpus, tmp_path)
    built = build_shard(job, 0, pieces, queries, [128, 512])
    exact = exact_cosines(job, pieces, queries)
    assert set(built.held) == {128, 512}
    np.testing.assert_allclose(built.held[512], exact.held, atol=1e-5)
    shard = open_shard(job.storage, job.kind, DIM, built.record.files, tmp_path)
    best = shard.search(vectors[held], 1, 128)
    assert shard.rows["id"].take(pa.array(best.rows[:, 0])).to_pylist() == [ids[5], ids[90]]


def test_measure_shard_finds_exact_cosines_and_times_each_effort(corpus, tmp_path):
    _, pieces, vectors, _ = corpus
    job = job_at(corpus, tmp_path)
    halves = [build_shard(job, n, [piece], NO_QUERIES, [128]) for n, piece in enumerate(pieces)]
    queries = RecallQueries(vectors[:40], vectors[:0], {})
    measures = [measure_shard(job, own.record.files, {}, queries, [128], 5) for own in halves]
    exact = exact_cosines(job, pieces, queries)
    merged = merge_cosines(measure.inside[128] for measure in measures)
    np.testing.assert_allclose(merged.cos, exact.inside, atol=1e-5)
    for measure in measures:
        assert measure.times[128].batch > 0 and len(measure.times[128].single) == 40
    known = {128: np.zeros((0, DEPTH), np.float32)}
    again = measure_shard(job, halves[0].record.files, known, queries, [128], 0)
    assert again.held is known and len(again.times[128].single) < 40


def test_build_shard_twice_writes_the_same_files(corpus, tmp_path):
    _, pieces, *_ = corpus
    for word in ("hnsw", "faiss:IVF4,PQ4"):
        first, second = (
            build_shard(job_at(corpus, tmp_path / name, word), 0, pieces, NO_QUERIES, [8])
            for name in ("a", "b")
        )
        assert first.record == second.record


def test_open_shard_with_a_changed_or_missing_file_is_refused(corpus, tmp_path):
    _, pieces, *_ = corpus
    job = job_at(corpus, tmp_path)
    files = build_shard(job, 0, pieces, NO_QUERIES, [8]).record.files
    for file in files:
        path = tmp_path / file.path
        good = path.read_bytes()
        for damage in (lambda p=path, g=good: p.write_bytes(g[:-1] + b"?"), path.unlink):
            damage()
            with pytest.raises(TransientError):
                open_shard(job.storage, job.kind, DIM, files, tmp_path)
            path.write_bytes(good)
    assert open_shard(job.storage, job.kind, DIM, files, tmp_path).num_live == 2 * ROWS


def test_query_without_a_vector_is_quoted_with_the_reason(bert_folder):
    with pytest.raises(ValueError, match=r"1 of 2 texts have no vector, .*u200b.*no tokens"):
        encode_queries(str(bert_folder), 32, Precision.FLOAT32, ["the word", "\u200b"])
