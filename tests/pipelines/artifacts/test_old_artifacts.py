"""Artifacts of an earlier commit (tests/support/old): read, left alone by a rerun, updated.

Identities hold whole paths and times of modification, so the folder is laid where it was made, one
test at a time. Vectors are compared with a tolerance: they were computed on another machine.
"""

import fcntl
import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from click.testing import CliRunner, Result
from support.embedding import files_of, quarantine_of, rows_of, table_of, vectors_of
from support.old.make import COMMANDS, MODIFIED, PLACE, sentence, set_times

from pipelines.artifacts.errors import BrokenArtifact, NewerFormat
from pipelines.artifacts.manifest import FORMAT, library_versions
from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from pipelines.search.index import Index
from sbert_core.corpus.published import MANIFEST
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.encoder import Encoder

MADE = Path(__file__).parents[2] / "support" / "old" / "made"
VECTORS = {"vectors": 35, "int8": 35, "template": 27, "content": 18, "chunks": 24}
PAIRS = {"pairs": 68, "nearest": 70, "cells": 63, "between": 59}
CLUSTERS = {"clusters": 35, "topics": 70}
SHARDS = {"shards": 40, "ranking": 16, "mined": 16}
ROWS = VECTORS | PAIRS | CLUSTERS | SHARDS | {"hnsw": 35, "faiss": 35}
TRAINED = ("encoder", "cross")
IN_PLACE = "clean"  # `sbert apply` wrote its files in place then


@pytest.fixture
def place(monkeypatch):
    """The folder as it was when its artifacts had just been made; the working directory."""
    with PLACE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        shutil.copytree(MADE, PLACE)
        set_times(PLACE)
        monkeypatch.chdir(PLACE)
        yield PLACE
        shutil.rmtree(PLACE)


def sbert(command: str) -> Result:
    return CliRunner().invoke(main, shlex.split(command))


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_of(folder) - {"_lock"}}


def corpus_rows(place: Path) -> list[dict]:
    """In the order of the artifacts: files by name."""
    paths = sorted((place / "corpus").rglob("*.parquet"))
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def rows(place: Path) -> list[dict]:
    return [row for batch in Artifact.open(place).read() for row in batch.to_pylist()]


def test_every_artifact_is_covered():
    made = {path.name for path in MADE.iterdir()} & set(COMMANDS)
    assert made == set(COMMANDS) == {*ROWS, *TRAINED, IN_PLACE}
    assert (Path("/tmp/sbert-mill-old/corpus"), 1_700_000_000) == (PLACE / "corpus", MODIFIED)
    assert sum(len(data) for data in contents(MADE).values()) < 2**20


@pytest.mark.parametrize("name", ROWS)
def test_old_artifact_opens_with_all_rows(name, place):
    artifact = Artifact.open(place / name)
    assert "format" not in json.loads((place / name / MANIFEST).read_bytes())
    assert artifact.rows == ROWS[name]
    if name not in ("hnsw", "faiss"):
        assert len(rows(place / name)) == ROWS[name]


def test_old_vectors_are_those_of_todays_encoder(place):
    wanted = [row for row in corpus_rows(place) if row["text"]]
    table = table_of(place / "vectors")
    assert table["id"].to_pylist() == [row["id"] for row in wanted]
    assert table["group"].to_pylist() == [row["group"] for row in wanted]
    encoder = Encoder.load(place / "model")
    vectors = encoder.encode([row["text"] for row in wanted])
    np.testing.assert_allclose(vectors_of(table), vectors, atol=1e-5)
    settings = Artifact.vectors(place / "vectors").manifest.settings
    assert settings.space == encoder.space()
    [quarantined] = quarantine_of(place / "vectors")
    assert (quarantined["id"], quarantined["reason"]) == ("r11", "null")
    scale = Artifact.vectors(place / "int8").manifest.settings.scale
    stored = vectors_of(table_of(place / "int8")) * scale
    np.testing.assert_allclose(stored, vectors, atol=scale)


@pytest.mark.parametrize("name", ["hnsw", "faiss"])
def test_old_index_finds_its_rows(name, place):
    table = table_of(place / "vectors")
    found = Index.open(place / name).search(vectors_of(table)[[0, 20]], 1)
    assert [hits[0] for hits in found.ids] == [table["id"][row].as_py() for row in (0, 20)]


def test_old_clusters_name_kept_witnesses(place):
    decided = {row["id"]: row for row in rows(place / "clusters")}
    kept = {name for name, row in decided.items() if row["keep"]}
    assert len(kept) == 14
    assert {row["witness"] for row in decided.values() if not row["keep"]} <= kept


def test_old_encoders_load(place):
    plain, trained = (Encoder.load(place / name) for name in ("model", "encoder"))
    assert trained.dim == plain.dim
    assert trained.space() != plain.space()
    scores = CrossEncoder.load(place / "cross").predict([("the word", "a word"), ("so", "hot")])
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != IN_PLACE])
def test_rerun_of_the_same_command_has_nothing_to_do(name, place, monkeypatch):
    if name in TRAINED:
        made = json.loads((place / name / "training.json").read_bytes())["versions"]
        if made != library_versions():
            pytest.skip("training is repeated under other versions of libraries, on purpose")

    def refuse(*arguments, **options):
        raise AssertionError("Ray was started")

    monkeypatch.setattr(ray, "init", refuse)
    before = contents(place / name)
    done = sbert(COMMANDS[name])
    assert done.exit_code == 0, done.output
    assert contents(place / name) == before


def test_rerun_of_a_changed_command_does_not_have_nothing_to_do(place, monkeypatch):
    """Else the test above could not fail."""
    monkeypatch.setattr(ray, "init", lambda *arguments, **options: 1 / 0)
    assert sbert(f"{COMMANDS['vectors']} --limit 5").exit_code == 1
    assert sbert(COMMANDS["nearest"].replace("--top-k 2", "--top-k 3")).exit_code == 1


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_added_row_passes_the_model_alone_and_every_stage_follows(place, ray_address):
    added = pa.table({**rows_of(["one word more than there was"], 90), "group": ["a"]})
    pq.write_table(added.append_column("year", pa.array([2003])), place / "corpus" / "c.parquet")
    notes = (place / "notes.csv").read_text()
    (place / "notes.csv").write_text(f'{notes}"{sentence(50, 40)}"\n')

    def run(name: str, out: str | None = None) -> None:
        command = COMMANDS[name].replace(f"--out {name}", f"--out {out or name}")
        address = "" if command.startswith("cluster") else f" --address {ray_address}"
        done = sbert(command + address)
        assert done.exit_code == 0, done.output

    for name, embedded in (("vectors", 1), ("int8", 1), ("chunks", 1)):
        old = {row["id"]: row["vector"] for row in rows(place / name)}
        run(name)
        ran = json.loads((place / name / "_run.json").read_bytes())
        assert (ran["embedded"], Artifact.open(place / name).rows > len(old)) == (embedded, True)
        new = {row["id"]: row["vector"] for row in rows(place / name)}
        assert {key: new[key] for key in old} == old
    for name in ("vectors", "pairs", "clusters"):
        run(name, None if name != "vectors" else "fresh")
    fresh, updated = table_of(place / "fresh"), table_of(place / "vectors")
    assert fresh.drop_columns("vector").equals(updated.drop_columns("vector"))
    np.testing.assert_allclose(vectors_of(fresh), vectors_of(updated), atol=1e-5)
    shutil.rmtree(place / "clusters")
    pairs = Artifact.pairs(place / "pairs").rows
    shutil.rmtree(place / "pairs")
    run("pairs")
    assert Artifact.pairs(place / "pairs").rows == pairs
    run("clusters")
    assert Artifact.clusters(place / "clusters").rows == 36
    run("hnsw")
    index = Index.open(place / "hnsw")
    assert index.rows == 36
    assert [list(hits) for hits in index.search(vectors_of(updated)[-1:], 1).ids] == [
        [updated["id"][-1].as_py()]
    ]


@pytest.mark.ray
def test_corpus_applied_in_place_is_refused_and_made_anew_elsewhere(place, ray_address):
    before = contents(place / IN_PLACE)
    command = f"{COMMANDS[IN_PLACE]} --address {ray_address}"
    assert sbert(command).exit_code == 2
    assert contents(place / IN_PLACE) == before
    assert sbert(command.replace(f"--out {IN_PLACE}", "--out anew")).exit_code == 0
    folder = Path(Artifact.open(place / "anew").folder)
    for path in (place / IN_PLACE).rglob("*.parquet"):
        now = pq.ParquetFile(folder / path.relative_to(place / IN_PLACE)).read()
        assert now.equals(pq.ParquetFile(path).read())


# -- the number of the format ----------------------------------------------------------------------


def renumbered(folder: Path, number: object) -> None:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_text(json.dumps({"format": number, **manifest}))


def test_manifest_without_a_number_is_of_the_first_format(place):
    plain = Artifact.open(place / "vectors").manifest
    renumbered(place / "vectors", 1)
    assert Artifact.open(place / "vectors").manifest == plain
    assert json.loads(plain.to_json())["format"] == FORMAT == 1


@pytest.mark.parametrize("name", ["shards", "vectors", "hnsw", "pairs", "clusters"])
def test_manifest_of_a_later_format_is_refused_with_the_remedy(name, place):
    renumbered(place / name, FORMAT + 1)
    before = contents(place / name)
    with pytest.raises(NewerFormat) as refused:
        Artifact.open(place / name)
    assert refused.value.exit_code == 2
    assert (refused.value.found, refused.value.known) == (FORMAT + 1, FORMAT)
    done = sbert(COMMANDS[name])
    assert done.exit_code == 2, done.output
    assert contents(place / name) == before


@pytest.mark.parametrize("number", [-1, "1", 1.5, None, True])
def test_manifest_with_a_format_that_is_no_number_is_refused(number, place):
    renumbered(place / "vectors", number)
    with pytest.raises(BrokenArtifact):
        Artifact.open(place / "vectors")
