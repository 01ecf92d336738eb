"""What a vectors manifest says of its vectors: true after updates, and of those who made them."""

import csv
import json
import logging

import numpy as np
import pytest
from support.embedding import (
    embed,
    published_bytes,
    rows_of,
    sentences,
    table_of,
    vectors_of,
    write_corpus,
)
from support.static_models import write_static_model

from pipelines.artifacts.reader import Artifact
from sbert_core.encoder.encoder import Encoder

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def options(ray_address, bert_folder):
    return {"model": bert_folder, "address": ray_address, "unit_rows": 32, "actors": 1}


def write_csv(path, texts, first):
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text"])
        rows.writerows([f"r{first + number}", text] for number, text in enumerate(texts))


def corpus_in(folder, texts):
    """Two files of which one has no row ranges; bad rows, and repeats across them."""
    write_corpus(folder, {"a.parquet": rows_of([*texts[:40], None, " ", *texts[:3]])})
    write_csv(folder / "b.csv", [*texts[40:70], "", texts[0]], 1000)
    return folder


def true_error(out, texts_by_id, model) -> float:
    """How far any published vector is from its text's, as 1 - cosine."""
    table, scale = table_of(out), Artifact.open(out).manifest.settings.scale
    exact = Encoder.load(model).encode([texts_by_id[name] for name in table["id"].to_pylist()])
    stored = vectors_of(table).astype(np.float64) * (scale or 1.0)
    cos = (stored * exact.astype(np.float64)).sum(1) / np.linalg.norm(stored, axis=1)
    return float(1 - cos.min())


def test_static_model_makes_the_vectors_of_its_encoder(options, tmp_path):
    model = write_static_model(tmp_path / "model")
    texts = sentences(40)
    write_corpus(tmp_path / "in", {"a.parquet": rows_of([*texts, "\u200b"])})
    report = embed(tmp_path / "in", tmp_path / "out", **options | {"model": model})
    assert (report.embedded, report.quarantined) == (41, 1)
    np.testing.assert_array_equal(
        vectors_of(table_of(tmp_path / "out")), Encoder.load(model).encode(texts)
    )
    assert spec_of(tmp_path / "out")["batch_invariant"] is True


def test_float16_update_has_the_bytes_of_a_run_from_scratch(options, tmp_path):
    texts = sentences(110)
    corpus, out = corpus_in(tmp_path / "in", texts), tmp_path / "out"
    embed(corpus, out, **options, dtype="float16", where="id != 'r7'")
    write_corpus(corpus, {"c.parquet": rows_of(texts[70:], 2000)})
    report = embed(corpus, out, **options, dtype="float16", where="id != 'r7'")
    assert report.embedded == 40
    embed(corpus, tmp_path / "fresh", **options, dtype="float16", where="id != 'r7'")
    assert published_bytes(out) == published_bytes(tmp_path / "fresh")


def test_int8_update_states_the_error_of_all_rows_and_counts_the_clipped(
    options, bert_folder, tmp_path, caplog
):
    texts = sentences(120)
    names = {f"r{number}": text for number, text in enumerate(texts)}
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of(texts[:1])})
    out = tmp_path / "out"
    embed(corpus, out, **options, dtype="int8")
    first = Artifact.open(out).manifest
    assert "clipped" not in first.metrics.storage_error
    write_corpus(corpus, {"b.parquet": rows_of(texts[1:], 1)})
    with caplog.at_level(logging.WARNING):
        embed(corpus, out, **options, dtype="int8")
    manifest = Artifact.open(out).manifest
    stated = manifest.metrics.storage_error
    assert manifest.settings.scale == first.settings.scale
    assert stated["sample"] == len(texts)  # small enough to be seen whole
    assert stated["self_max"] == pytest.approx(true_error(out, names, bert_folder), rel=1e-3)
    exact = np.abs(Encoder.load(bert_folder).encode(texts)).max(axis=1)
    assert stated["clipped"] == (exact > 127.5 * manifest.settings.scale).sum() > 0
    assert [r for r in caplog.records if "clipped" in r.getMessage()]


def test_int8_scale_of_an_artifact_without_rows_is_not_kept(options, tmp_path):
    texts = sentences(30)
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of([None, ""])})
    embed(corpus, tmp_path / "out", **options, dtype="int8", long="pool")
    write_corpus(corpus, {"b.parquet": rows_of(texts, 10)})
    embed(corpus, tmp_path / "out", **options, dtype="int8", long="pool")
    assert np.abs(vectors_of(table_of(tmp_path / "out"))).max() == 127


def spec_of(out) -> dict:
    return json.loads((out / "_manifest.json").read_text())["spec"]


def test_batch_invariance_is_what_the_actors_found_not_the_driver(
    options, plain_encoder_folder, tmp_path, monkeypatch
):
    """The driver may have another device; it is not even asked."""
    found = property(lambda self: pytest.fail("the driver was asked"))
    monkeypatch.setattr(Encoder, "batch_invariant", found)
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of(sentences(20))})
    for family, want in (("bert", True), ("albert", False)):
        out = tmp_path / family
        embed(corpus, out, **options | {"model": plain_encoder_folder(family)})
        assert spec_of(out)["batch_invariant"] is want
        assert list(spec_of(out))[-1] == "batch_invariant"  # where it always stood


def test_batch_invariance_of_vectors_that_are_taken_over_is_that_of_their_run(options, tmp_path):
    texts = sentences(50)
    files = {"a.parquet": rows_of(texts[:20]), "b.parquet": rows_of(texts[20:40], 100)}
    corpus, out = write_corpus(tmp_path / "in", files), tmp_path / "out"
    embed(corpus, out, **options)
    facts = json.loads((out / "_manifest.json").read_text())
    assert facts["spec"]["batch_invariant"] is True
    facts["spec"]["batch_invariant"] = False  # as if a GPU had made them
    (out / "_manifest.json").write_text(json.dumps(facts))
    (corpus / "b.parquet").unlink()
    assert embed(corpus, out, **options).embedded == 0  # a unit taken over whole
    assert spec_of(out)["batch_invariant"] is False
    write_corpus(corpus, {"a.parquet": rows_of(texts[5:25])})
    assert embed(corpus, out, **options).embedded == 5  # rows taken over beside new ones
    assert spec_of(out)["batch_invariant"] is False
    write_corpus(corpus, {"a.parquet": rows_of(texts[40:])})
    assert embed(corpus, out, **options).embedded == 10  # nothing of the old is left
    assert spec_of(out)["batch_invariant"] is True


def test_pooled_documents_with_nothing_to_encode_are_planned_and_updated(options, tmp_path):
    texts = sentences(40, longest=90)
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of(texts)})
    out, pool = tmp_path / "out", {**options, "long": "pool", "distinct": "unit"}
    embed(corpus, out, **pool)
    assert embed(corpus, out, **pool, plan=True).to_embed == 0
    want = vectors_of(table_of(out))
    write_corpus(corpus, {"a.parquet": rows_of(texts[1:], 1)})
    assert embed(corpus, out, **pool).embedded == 0
    np.testing.assert_array_equal(vectors_of(table_of(out)), want[1:])


def test_vectors_of_two_kinds_of_processor_are_not_batch_invariant(options, tmp_path):
    texts = sentences(50)
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of(texts[:20])})
    out = tmp_path / "out"
    embed(corpus, out, **options)
    facts = json.loads((out / "_manifest.json").read_text())
    [own] = facts["facts"]["processors"]
    facts["facts"]["processors"] = ["0a"]  # as if another kind had made them
    (out / "_manifest.json").write_text(json.dumps(facts))
    write_corpus(corpus, {"b.parquet": rows_of(texts[20:], 100)})
    embed(corpus, out, **options)
    manifest = Artifact.open(out).manifest
    assert manifest.metrics.processors == tuple(sorted(["0a", own]))
    assert manifest.settings.batch_invariant is False
    (corpus / "a.parquet").unlink()
    embed(corpus, tmp_path / "fresh", **options)
    assert Artifact.open(tmp_path / "fresh").manifest.metrics.processors == (own,)
