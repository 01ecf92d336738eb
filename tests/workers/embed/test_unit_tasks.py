"""Scan, actor and fill of `sbert embed` as plain calls, against an encoder and a dictionary."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.ray_kv import ray_kv as ray_kv
from support.unit_jobs import (
    CORPUS,
    LONG_TEXT,
    call,
    config_of,
    fill,
    parts,
    scan,
)
from support.unit_jobs import encoder as encoder
from support.unit_jobs import make_job as make_job

from sbert_core.choices import LongTexts
from sbert_core.encoder.documents import encode_documents
from sbert_core.errors import InvalidInput
from sbert_core.vectors.block import vector_matrix
from workers.embed.actor import MixedDevices, UnitEmbedder
from workers.embed.crash_counter import MAX_CRASHES
from workers.embed.records import UnitResult, read_commits, read_stats


def embed_all(units, job, config, dim, earlier=()) -> list[UnitResult]:
    """Pass 1 over the units that own a text, in reverse order, then pass 2."""
    counts, _, claims = scan(units, job, earlier)
    own_rows = {one.unit: one.own_rows for one in claims}
    if not job.scanned.with_texts:  # each unit finds repeats within itself
        own_rows = {count.unit: count.num_valid for count in counts}
    embedder = UnitEmbedder(job, config, job.generation)
    results = [call(embedder, unit) for unit in reversed(units) if own_rows[unit.number]]
    done = {record.unit for record in read_commits(job.storage, job.work)}
    assert done == {result.unit for result in results if result.commit is not None}
    fill([unit for unit in units if unit.number not in done], job, dim)
    return results


def usable(corpus):
    """File, row and text of every row that gets a vector."""
    rows = [(path, n, text) for path, texts in corpus.items() for n, text in enumerate(texts)]
    return [row for row in rows if row[2] and row[2].strip()]


def unit_at(units, path, row) -> int:
    return next(u.number for u in units if u.path == path and 0 <= row - u.first_row < u.num_rows)


def test_scan_counts_and_owners_are_those_of_a_dictionary(make_job):
    units, job = make_job(CORPUS)
    counts, reduces, claims = scan(units, job)
    rows = usable(CORPUS)
    assert [count.unit for count in counts] == [unit.number for unit in units]
    assert sum(count.num_rows for count in counts) == sum(map(len, CORPUS.values()))
    assert sum(count.num_valid for count in counts) == len(rows)
    assert sum(count.num_chars for count in counts) == sum(len(text) for *_, text in rows)
    owners: dict[str, int] = {}
    for path, row, text in rows:
        owners.setdefault(text, unit_at(units, path, row))
    own = [[text for text, owner in owners.items() if owner == unit.number] for unit in units]
    assert [one.own_rows for one in claims] == [len(texts) for texts in own]
    assert [one.own_chars for one in claims] == [sum(map(len, texts)) for texts in own]
    assert sum(one.num_distinct for one in reduces) == len(owners)
    assert sum(one.num_reused for one in reduces) == 0
    assert not any(one.repeated_ids for one in reduces)


def test_scan_finds_ids_that_occur_twice(make_job, tmp_path):
    units, job = make_job(CORPUS)
    ids = [*(f"b{n}" for n in range(6)), "a2"]
    table = pa.table({"id": ids, "text": pa.array(CORPUS["b.parquet"], pa.string())})
    pq.write_table(table, tmp_path / "out/corpus/b.parquet")
    _, reduces, _ = scan(units, job)
    [repeated] = [one.repeated_ids for one in reduces if one.repeated_ids]
    assert repeated == ((0, 2), (5, 0))


def test_scan_refuses_a_row_without_an_id(make_job, tmp_path):
    units, job = make_job({"a.parquet": ["one", "two"]})
    table = pa.table({"id": pa.array(["a", None]), "text": ["one", "two"]})
    pq.write_table(table, tmp_path / "out/corpus/a.parquet")
    with pytest.raises(InvalidInput):
        scan(units, job)


@pytest.mark.parametrize("is_global", [True, False], ids=["corpus", "unit"])
def test_units_hold_each_row_with_the_vector_of_its_text(
    is_global, make_job, encoder, bert_folder, ray_kv
):
    units, job = make_job(CORPUS, with_texts=is_global)
    results = embed_all(units, job, config_of(encoder, bert_folder), encoder.dim)
    table, quarantine = parts(job)
    rows = usable(CORPUS)
    found = zip(table["file"].to_pylist(), table["row"].to_pylist(), strict=True)
    assert list(found) == [row[:2] for row in rows]
    assert table["id"].to_pylist() == [f"{path[0]}{row}" for path, row, _ in rows]
    want = np.concatenate([encode_documents(encoder, [text]).vectors for *_, text in rows])
    np.testing.assert_allclose(vector_matrix(table["vector"]), want, atol=1e-6)
    reasons = dict(zip(quarantine["id"].to_pylist(), quarantine["reason"].to_pylist(), strict=True))
    assert reasons == {"a2": "null", "a5": "blank", "b3": "empty"}
    stats = read_stats(job.storage, job.work).values()
    num_distinct = len({text for *_, text in rows})
    num_encoded = sum(s.num_encoded for s in stats)
    assert num_encoded == num_distinct if is_global else num_encoded > num_distinct
    assert num_encoded + sum(s.num_repeats for s in stats) == len(rows)
    assert num_encoded == sum(result.stats.num_encoded for result in results)
    assert len(stats) == len(units)


def test_chunks_of_long_documents_are_those_of_the_encoder(make_job, encoder, bert_folder, ray_kv):
    corpus = {"a.parquet": ["so", LONG_TEXT], "b.parquet": [LONG_TEXT, "there"]}
    units, job = make_job(corpus, rows=1, has_chunks=True)
    config = config_of(encoder, bert_folder, LongTexts.CHUNKS)
    embed_all(units, job, config, encoder.dim)
    table, _ = parts(job)
    texts = [text for *_, text in usable(corpus)]
    want = [encode_documents(encoder, [text], long=LongTexts.CHUNKS) for text in texts]
    assert len(want[1].vectors) > 1
    vectors = np.concatenate([documents.vectors for documents in want])
    np.testing.assert_allclose(vector_matrix(table["vector"]), vectors, atol=1e-6)
    ends = chain.from_iterable(documents.end_char.tolist() for documents in want)
    assert table["end_char"].to_pylist() == list(ends)
    numbers = chain.from_iterable(range(len(documents.vectors)) for documents in want)
    assert table["chunk"].to_pylist() == list(numbers)


def test_vectors_of_earlier_parts_are_reused(make_job, encoder, bert_folder, ray_kv):
    units, job = make_job({"a.parquet": CORPUS["a.parquet"]}, name="old")
    config = config_of(encoder, bert_folder)
    embed_all(units, job, config, encoder.dim)
    old, _ = parts(job)
    records = read_commits(job.storage, job.work)
    known = set(old["content_hash"].to_pylist())
    units, job = make_job(CORPUS, name="new", earlier=records)
    embed_all(units, job, config, encoder.dim, records)
    table, _ = parts(job)
    want = np.concatenate(
        [encode_documents(encoder, [text]).vectors for *_, text in usable(CORPUS)]
    )
    np.testing.assert_allclose(vector_matrix(table["vector"]), want, atol=1e-6)
    stats = read_stats(job.storage, job.work).values()
    hashes = table["content_hash"].to_pylist()
    assert sum(s.num_reused for s in stats) == sum(value in known for value in hashes)
    assert sum(s.num_encoded for s in stats) == len(set(hashes) - known)


def test_actor_counts_crashes_by_markers_and_removes_them_after_success(
    make_job, encoder, bert_folder, ray_kv
):
    [unit], job = make_job({"a.parquet": ["one", "two"]})
    scan([unit], job)
    folder = f"{job.work}/attempts/{unit.name}"
    job.storage.put(f"{folder}/crashed", b"")
    embedder = UnitEmbedder(job, config_of(encoder, bert_folder), "run")
    result = call(embedder, unit)
    assert (result.num_crashes, result.stats.num_encoded, result.num_bad) == (1, 2, 0)
    assert list(job.storage.list(folder)) == []


def test_actor_gives_up_on_a_unit_that_crashed_too_often(make_job, encoder, bert_folder, ray_kv):
    [unit], job = make_job({"a.parquet": ["one"]})
    folder = f"{job.work}/attempts/{unit.name}"
    for number in range(MAX_CRASHES):
        job.storage.put(f"{folder}/{number}", b"")
    embedder = UnitEmbedder(job, config_of(encoder, bert_folder), "run")
    with pytest.raises(OSError) as caught:
        call(embedder, unit)
    assert caught.value.errno == errno.ENOMEM
    assert len(list(job.storage.list(folder))) == MAX_CRASHES


def test_actor_that_crashed_while_loading_too_often_loads_nothing(
    make_job, encoder, bert_folder, ray_kv
):
    [unit], job = make_job({"a.parquet": ["one"]})
    ray_kv.values[b"run-start/actor-1"] = str(MAX_CRASHES).encode()
    embedder = UnitEmbedder(job, config_of(encoder, "/nowhere"), "run")
    with pytest.raises(OSError) as caught:
        call(embedder, unit)
    assert caught.value.errno == errno.ENOMEM


def test_actor_refuses_a_model_of_another_recipe(make_job, encoder, plain_encoder_folder, ray_kv):
    _, job = make_job({"a.parquet": ["one"]})
    with pytest.raises(ValueError):
        UnitEmbedder(job, config_of(encoder, plain_encoder_folder("roberta")), "run")


def test_actor_gives_the_tokenizer_as_many_threads_as_it_has_cores(
    make_job, encoder, bert_folder, ray_kv, monkeypatch
):
    _, job = make_job({"a.parquet": ["one"]})
    monkeypatch.setenv("RAYON_NUM_THREADS", "8")
    UnitEmbedder(job, config_of(encoder, bert_folder), "run")
    assert os.environ["RAYON_NUM_THREADS"] == "8", "set by the user"
    monkeypatch.delenv("RAYON_NUM_THREADS")
    UnitEmbedder(job, replace(config_of(encoder, bert_folder), threads=3), "run")
    assert os.environ["RAYON_NUM_THREADS"] == "3"


@pytest.mark.slow
def test_tokenizer_takes_the_threads_that_were_set_after_its_import(bert_folder):
    code = """if True:
        import os, sys
        from sbert_core.encoder.encoder import Encoder

        encoder = Encoder.load(sys.argv[1])
        os.environ["RAYON_NUM_THREADS"] = "5"
        before = len(os.listdir("/proc/self/task"))
        encoder.tokenize(["the hot word"] * 1000)
        print(len(os.listdir("/proc/self/task")) - before)
    """
    environment = {name: own for name, own in os.environ.items() if name != "RAYON_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(bert_folder)],
        env=environment, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == "5"


def test_actor_on_another_kind_of_device_is_refused(make_job, encoder, bert_folder, ray_kv):
    [unit], job = make_job({"a.parquet": ["one"]})
    scan([unit], job)
    config = config_of(encoder, bert_folder)
    assert call(UnitEmbedder(job, config, "run"), unit).stats.device == "cpu"
    ray_kv.values[b"other/agreed-device"] = b"cuda"  # as the first actor of the run has found
    with pytest.raises(MixedDevices):
        call(UnitEmbedder(job, config, "other"), unit)
    with pytest.raises(MixedDevices):  # as an earlier attempt has recorded
        call(UnitEmbedder(job, replace(config, device="cuda"), "run"), unit)
    assert call(UnitEmbedder(job, replace(config, device="cpu"), "run"), unit).commit is not None
