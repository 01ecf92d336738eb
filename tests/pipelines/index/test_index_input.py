"""What `sbert index` and `sbert search` refuse, adjust and survive; vectors made up."""

import os
import signal
import time

import numpy as np
import pytest
from click.testing import CliRunner
from support.embedding import assert_nothing_but_the_artifact, published_bytes
from support.kills import Job
from support.synthetic import random_vectors, topical_vectors, write_vectors

from pipelines.cli.main import main
from pipelines.index import job as index_job
from pipelines.index.spec import IndexSpec
from pipelines.search.index import Index

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
DIM = 16


def indexed(vectors, out, address, **options):
    spec = {"recall_sample": 50, "address": address, **options}
    return index_job.run(IndexSpec(vectors=str(vectors), out=str(out), **spec))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_vectors_without_direction_are_refused_by_id(bad, tmp_path, ray_address):
    [block] = random_vectors(60, DIM)
    block[7] = bad
    write_vectors(tmp_path / "v", [block])
    with pytest.raises(ValueError, match=r"\b7\b.*\b1\b"):
        indexed(tmp_path / "v", tmp_path / "i", ray_address)
    assert not (tmp_path / "i/_manifest.json").exists()


def test_fewer_rows_than_cells_are_said_and_adjusted(tmp_path, ray_address, caplog):
    write_vectors(tmp_path / "v", random_vectors(500, DIM))
    with caplog.at_level("WARNING"):
        report = indexed(tmp_path / "v", tmp_path / "i", ray_address, kind="faiss:IVF4096,Flat")
    assert "IVF4096,Flat" in caplog.text and "IVF12,Flat" in caplog.text
    assert report.card.parameters.factory == "IVF12,Flat"
    assert report.card.recall["inside"]["1"].value == 1.0
    again = indexed(tmp_path / "v", tmp_path / "i", ray_address, kind="faiss:IVF4096,Flat")
    assert not again.is_new


def test_more_hits_than_rows_and_another_space(tmp_path, ray_address):
    write_vectors(tmp_path / "v", random_vectors(30, DIM))
    indexed(tmp_path / "v", tmp_path / "i", ray_address)
    index = Index.open(tmp_path / "i")
    [ids] = index.search(np.ones(DIM), 1000).ids
    assert sorted(ids) == list(range(30))
    with pytest.raises(ValueError, match=r"\b3\b.*\b16\b"):
        index.search(np.ones((1, 3)))
    with pytest.raises(ValueError, match="direction"):
        index.search(np.zeros((1, DIM)))
    write_vectors(tmp_path / "w", random_vectors(30, DIM), space="another")
    with pytest.raises(ValueError, match="--out"):
        indexed(tmp_path / "w", tmp_path / "i", ray_address)


def test_files_not_made_here_are_refused(tmp_path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/some.faiss").write_bytes(b"IxFI")
    done = CliRunner().invoke(main, ["search", str(tmp_path / "plain"), "a text"])
    assert done.exit_code == 2
    assert str(tmp_path / "plain") in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_what_one_line_says(tmp_path, ray_address):
    write_vectors(tmp_path / "v", random_vectors(30, DIM))
    words = ["index", str(tmp_path / "v"), "--out", str(tmp_path / "i"), "--address", ray_address]
    for more, code, reason in (
        (["--kind", "annoy"], 2, "'annoy'"),
        (["--kind", "faiss:PQ7"], 2, "16 dimensions"),
        (["--m", "1"], 2, "m is 1"),
        (["--recall-target", "1.5"], 2, "1.5"),
        (["--recall-target", "0.9999"], 4, "0.9999"),
    ):
        done = CliRunner().invoke(main, [*words, *more])
        assert (done.exit_code, reason in done.output) == (code, True), done.output
        assert not (tmp_path / "i/_manifest.json").exists()
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0 and "30 rows added" in done.output, done.output
    done = CliRunner().invoke(main, ["search", str(tmp_path / "i"), "  "])
    assert (done.exit_code, "empty" in done.output) == (2, True), done.output


@pytest.mark.long
def test_kills_change_no_byte(tmp_path, ray_address):
    """A task killed by itself, then the driver; shards that were done are not built again."""
    write_vectors(tmp_path / "v", topical_vectors(12_000, 64))
    words = ["index", str(tmp_path / "v"), "--shards", "6", "--out"]
    indexed(tmp_path / "v", tmp_path / "calm", ray_address, shards=6, recall_sample=1000)
    job = Job([*words, str(tmp_path / "out")], tmp_path / "log")
    job.start()
    os.kill(job.until(lambda: job.victims("index task"))[0], signal.SIGKILL)
    notes = job.until(lambda: list(tmp_path.glob("out/_work/*/shard-*.npz")))
    job.kill()
    before = {note: note.stat().st_mtime_ns for note in notes}
    job.start()
    while job.is_running:
        for note, changed in before.items():
            assert not note.exists() or note.stat().st_mtime_ns == changed
        time.sleep(0.05)
    assert job.wait() == 0, job.log.read_text()
    assert published_bytes(tmp_path / "out") == published_bytes(tmp_path / "calm")
    (tmp_path / "out/card.json").unlink()
    assert_nothing_but_the_artifact(tmp_path / "out")
