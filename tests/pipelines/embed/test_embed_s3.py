"""The job on a real S3 server, started here on loopback."""

import json
import time

import numpy as np
import pytest
from click.testing import CliRunner
from support.embedding import (
    embed,
    quarantine_of,
    rows_of,
    sentences,
    table_of,
    vectors_of,
    write_corpus,
)
from support.s3 import NO_SERVER, SECRET, WEED

from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from pipelines.search.index import Index
from sbert_core.storage import BusyError, ConflictError, ObjectStorage, storage_at

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(WEED is None, reason=NO_SERVER)]


def test_storage_keeps_its_promises(bucket):
    storage = storage_at(f"{bucket}/promises")
    storage.put("a/b", b"one")
    assert storage.read("a/b") == b"one"
    assert storage.read_range("a/b", 1, 2) == b"ne"
    assert [stat.name for stat in storage.list("a")] == ["a/b"]
    storage.link("a/b", "c")
    seen = storage.stat("c")
    storage.put_if("c", b"two", seen.version)
    with pytest.raises(ConflictError):
        storage.put_if("c", b"three", seen.version)
    with pytest.raises(ConflictError):
        storage.put_if("c", b"three", None)
    assert storage.read("c") == b"two"
    with storage.open("a/b") as file:
        file.seek(1)
        assert file.read() == b"ne"
    assert storage.carry_over("a/b", "d") == "a/b" and storage.stat("d") is None
    names = [f"many/{number:04d}" for number in range(1100)]  # a request deletes a thousand
    for name in names[-3:]:
        storage.put(name, b"x")
    storage.put("many/kept", b"x")
    storage.delete_files(names)
    assert [stat.name for stat in storage.list("many")] == ["many/kept"]
    storage.delete(["a"])
    assert storage.stat("a/b") is None


@pytest.mark.slow
def test_only_one_writer_holds_a_prefix_and_a_dead_ones_lease_ends(bucket, monkeypatch):
    storage = storage_at(f"{bucket}/lease")
    with storage.lock(), pytest.raises(BusyError), storage_at(f"{bucket}/lease").lock():
        pass
    with storage.lock():
        pass
    assert isinstance(storage, ObjectStorage)
    storage.put("_lock", b"left by a killed run")
    with pytest.raises(BusyError), storage.lock():
        pass
    monkeypatch.setattr("sbert_core.storage.lease.LEASE_SECONDS", 1.0)
    time.sleep(2.1)
    with storage.lock():
        pass


@pytest.mark.ray
def test_corpus_model_and_vectors_on_s3_equal_those_on_disk(
    bucket, bert_folder, ray_address, tmp_path
):
    texts = sentences(90)
    files = {"a.parquet": rows_of([*texts[:50], None]), "b.parquet": rows_of(texts[45:], 1000)}
    corpus = write_corpus(tmp_path / "in", files)
    remote = storage_at(f"{bucket}/corpus")
    for name in files:
        remote.put(name, (corpus / name).read_bytes())
    model = storage_at(f"{bucket}/model")
    for path in bert_folder.iterdir():
        model.put(path.name, path.read_bytes())
    out = f"{bucket}/vectors"

    def embedded() -> dict:
        words = [remote.uri, "--out", out, "--model", f"{bucket}/model", "--unit-rows", "16"]
        ran("embed", *words, "--address", ray_address)
        return json.loads(storage_at(out).read("_run.json"))

    run = embedded()
    assert (run["rows"], run["quarantined"], run["embedded"]) == (95, 1, 90)
    embed(corpus, tmp_path / "out", bert_folder, unit_rows=16, address=ray_address)
    assert table_of(out).equals(table_of(tmp_path / "out"))
    assert [row["reason"] for row in quarantine_of(out)] == ["null"]
    names = {stat.name for stat in storage_at(out).list()}
    manifest = Artifact.open(out).manifest
    listed = {file.path for file in (*manifest.files, *manifest.quarantine)}
    assert names == listed | {"_manifest.json", "_run.json"}
    for name in ("_manifest.json", "_run.json"):
        assert SECRET.encode() not in storage_at(out).read(name)
    write_corpus(tmp_path / "more", {"c.parquet": rows_of(["the new word"], 5000)})
    remote.put("c.parquet", (tmp_path / "more/c.parquet").read_bytes())
    assert embedded()["embedded"] == 1
    ran("index", out, "--out", f"{bucket}/index", "--shards", "2", "--address", ray_address)
    vectors = table_of(out)
    queries = vectors_of(vectors)[:5]
    best = np.sort(queries @ vectors_of(vectors).T)[:, :-4:-1]
    index = Index.open(f"{bucket}/index")
    np.testing.assert_allclose(np.stack(index.search(queries, 3).cos), best, atol=1e-5)
    assert index.search_text("the new word", 1).ids == [["r5000"]]


def ran(*words) -> None:
    """A command; test_secrets.py runs one on an embedded Ray, which inherits the credentials."""
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert SECRET not in done.output
