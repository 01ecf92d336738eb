"""`sbert index` and `sbert search`: whole runs on Ray with a tiny encoder."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.embedding import (
    embed,
    published_bytes,
    rows_of,
    sentences,
    table_of,
    vectors_of,
    write_corpus,
)

from pipelines.artifacts.errors import TargetMissed, WrongKind
from pipelines.index import job as index_job
from pipelines.index.spec import IndexSpec
from pipelines.search import job as search_job
from pipelines.search.index import Index, SpaceMismatch
from pipelines.search.spec import SearchSpec
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.errors import TransientError
from sbert_core.json_record import encode

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


def columns_of(texts, first=0):
    return {**rows_of(texts, first), "lang": ["ab"[n % 2] for n in range(len(texts))]}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    texts = sentences(400)
    files = {"a.parquet": columns_of([*texts[:200], *texts[:20]])}
    files["b.parquet"] = columns_of(texts[200:], 1000)
    return write_corpus(tmp_path_factory.mktemp("corpus"), files)


@pytest.fixture(scope="module")
def options(ray_address, bert_folder):
    return {"model": bert_folder, "address": ray_address, "unit_rows": 64, "carry": ("lang",)}


@pytest.fixture(scope="module")
def vectors(corpus, options, tmp_path_factory):
    out = tmp_path_factory.mktemp("vectors") / "v"
    embed(corpus, out, **options)
    return out


def indexed(vectors, out, address, **options):
    spec = {"recall_sample": 100, "shards": 2, "address": address, **options}
    return index_job.run(IndexSpec(vectors=str(vectors), out=str(out), **spec))


@pytest.fixture(scope="module")
def published(vectors, tmp_path_factory, ray_address):
    out = tmp_path_factory.mktemp("index") / "i"
    return out, indexed(vectors, out, ray_address)


def exact_ids(table, queries, k):
    """Ids by falling cosine, ties by id, of all rows."""
    cos = queries @ vectors_of(table).T
    ids = table["id"].to_pylist()
    return [sorted(ids, key=lambda i, r=row: (-r[ids.index(i)], i))[:k] for row in cos]


def test_search_equals_exact_search_and_the_card_says_so(published, vectors):
    out, report = published
    card = json.loads((out / "card.json").read_text())
    assert card == encode(report.card)
    assert (card["rows"], card["shards"], card["stale"]) == (420, 2, 0)
    assert card["distinct"] < 420
    assert {"held", "inside"} == set(card["recall"])
    assert card["recall"]["inside"]["10"]["value"] == 1.0
    table = table_of(vectors)
    queries = vectors_of(table)[[0, 7, 250]]
    found = Index.open(out).search(queries, 5)
    for ids, cos, row in zip(found.ids, found.cos, queries @ vectors_of(table).T, strict=True):
        best = np.sort(row)[::-1][:5]
        np.testing.assert_allclose(cos, best, atol=1e-5)
        assert len(set(ids)) == 5
    everything = Index.open(out).search(queries[:1], 1000)
    assert sorted(everything.ids[0]) == sorted(table["id"].to_pylist())


def test_same_bytes_for_a_second_build_and_nothing_to_do(published, vectors, tmp_path, ray_address):
    out, _ = published
    indexed(vectors, tmp_path / "again", ray_address)
    assert published_bytes(tmp_path / "again") == published_bytes(out)
    assert not indexed(vectors, out, "127.0.0.1:1").is_new


def test_updates_add_what_is_new_and_hide_what_is_gone(corpus, options, tmp_path, ray_address):
    folder = tmp_path / "corpus"
    texts = sentences(400)
    write_corpus(folder, {"a.parquet": columns_of(texts[:200])})
    write_corpus(folder, {"b.parquet": columns_of(texts[200:], 1000)})
    embed(folder, tmp_path / "v", **options)
    out = tmp_path / "i"
    indexed(tmp_path / "v", out, ray_address)
    changed = columns_of(texts[:200])
    changed["text"][3] = "the word of the time"  # one row is another, ten are gone, one is new
    changed = {name: [*values[:190], values[0]] for name, values in changed.items()}
    changed["id"][-1], changed["text"][-1] = "new", "he was with the word"
    write_corpus(folder, {"a.parquet": changed})
    embed(folder, tmp_path / "v", **options)
    report = indexed(tmp_path / "v", out, ray_address)
    assert (report.num_added, report.num_removed, report.num_built) == (2, 11, 2)
    assert report.card.stale == pytest.approx(11 / 402, abs=1e-6)
    index = Index.open(out)
    table = table_of(tmp_path / "v")
    found = index.search(vectors_of(table), 1000)
    for ids in found.ids:
        assert sorted(ids) == sorted(table["id"].to_pylist())
    assert index.search_text("he was with the word", 1).ids == [["new"]]
    hit = search_job.run(SearchSpec(index=str(out), text="the word of the time", k=1)).hits[0]
    assert (hit.id, hit.text) == ("r3", "the word of the time")
    write_corpus(folder, {"a.parquet": columns_of(sentences(200, seed=9))})
    embed(folder, tmp_path / "v", **options)
    anew = indexed(tmp_path / "v", out, ray_address)
    assert (anew.num_added, anew.card.stale, anew.card.shards) == (400, 0, 2)


def test_one_query_has_texts_filters_and_notes(published, corpus):
    out, _ = published
    text = pq.read_table(corpus / "b.parquet")["text"][5].as_py()
    report = search_job.run(SearchSpec(index=str(out), text=text, k=3))
    assert (report.hits[0].id, report.hits[0].text) == ("r1005", text)
    assert report.hits[0].cos == pytest.approx(1, abs=1e-5)
    odd = search_job.run(SearchSpec(index=str(out), text=text, k=400, filter="lang = 'a'"))
    assert len(odd.hits) == 210 and "r1005" not in {hit.id for hit in odd.hits}
    path = corpus / "b.parquet"
    before, times = path.read_bytes(), path.stat()
    try:
        path.write_bytes(before + b" ")
        changed = search_job.run(SearchSpec(index=str(out), text=text, k=3))
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [hit.id for hit in changed.hits] == [hit.id for hit in report.hits]
    [note] = changed.notes
    assert changed.hits[0].text is None and path.name in note


def test_a_file_of_queries_gives_the_same_hits(published, corpus, tmp_path, ray_address):
    out, _ = published
    hits = tmp_path / "hits.parquet"
    spec = SearchSpec(
        index=str(out), queries=str(corpus / "b.parquet"), k=4, out=str(hits), address=ray_address
    )
    assert search_job.run(spec).num_queries == 200
    table = pq.read_table(hits)
    assert table.column_names == ["query", "rank", "id", "cos"]
    texts = pq.read_table(corpus / "b.parquet")["text"].to_pylist()
    single = Index.open(out).search_text(texts, 4)
    assert table["id"].to_pylist() == [i for ids in single.ids for i in ids]
    assert table["rank"].to_pylist() == [1, 2, 3, 4] * 200


def test_a_cross_encoder_has_the_last_word(published, corpus, pair_folder, tmp_path, ray_address):
    out, _ = published
    torch.manual_seed(0)
    cross = CrossEncoder.load(pair_folder("bert"), num_outputs=1)
    cross.save(tmp_path / "cross")
    texts = pq.read_table(corpus / "b.parquet")["text"].to_pylist()[:5]
    one = {"index": str(out), "k": 6, "rerank": str(tmp_path / "cross")}
    plain = search_job.run(SearchSpec(index=str(out), text=texts[0], k=6)).hits
    hits = search_job.run(SearchSpec(text=texts[0], **one)).hits
    assert {hit.id: hit.cos for hit in hits} == {hit.id: hit.cos for hit in plain}
    scores = cross.predict([(texts[0], str(hit.text)) for hit in hits])
    np.testing.assert_allclose([hit.rerank for hit in hits], scores, atol=1e-5)
    assert [hit.rerank for hit in hits] == sorted(scores.tolist(), reverse=True)
    queries = tmp_path / "queries.parquet"
    pq.write_table(pa.table({"text": texts}), queries)
    many = SearchSpec(
        queries=str(queries), out=str(tmp_path / "hits.parquet"), address=ray_address, **one
    )
    search_job.run(many)
    table = pq.read_table(tmp_path / "hits.parquet").to_pylist()[:6]
    assert [row["id"] for row in table] == [hit.id for hit in hits]
    np.testing.assert_allclose([row["rerank"] for row in table], scores, atol=1e-5)
    three = CrossEncoder.load(pair_folder("bert"), num_outputs=3)
    three.save(tmp_path / "three")
    with pytest.raises(ValueError, match="three"):
        search_job.run(SearchSpec(text="x", **{**one, "rerank": str(tmp_path / "three")}))


def test_what_cannot_be_is_refused(published, vectors, tmp_path, ray_address, minilm_folder):
    out, _ = published
    with pytest.raises(TargetMissed):
        indexed(vectors, tmp_path / "x", ray_address, recall_target=0.9999)
    with pytest.raises(SpaceMismatch):
        search_job.run(SearchSpec(index=str(out), text="x", model=str(minilm_folder)))
    with pytest.raises(WrongKind):
        indexed(out, tmp_path / "x", ray_address)
    with pytest.raises(WrongKind):
        Index.open(vectors)
    copy = tmp_path / "copy"
    indexed(vectors, copy, ray_address)
    [graph, *_] = sorted(copy.glob("data/*/*.hnsw"))
    graph.write_bytes(graph.read_bytes()[:-1] + b"?")
    with pytest.raises(TransientError, match=graph.name):
        Index.open(copy).search(np.ones((1, 32)), 1)
