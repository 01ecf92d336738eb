"""Waiting: for room on a cluster and for another run, said, and with an end."""

import threading
import time

import pytest
from click.testing import CliRunner
from support.embedding import rows_of, sentences, write_corpus
from support.kills import Job

from pipelines.artifacts.errors import PartialWork
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from pipelines.cli.main import main
from pipelines.runtime.capacity import max_workers, wait_for_capacity
from pipelines.runtime.session import job_session
from pipelines.runtime.wait_policy import lock_when_free, wait_policy
from sbert_core.storage import BusyError

pytestmark = pytest.mark.timeout(240)


@pytest.mark.ray
def test_room_that_never_comes_ends_the_wait(ray_address, tmp_path):
    with job_session(str(tmp_path), ray_address), wait_policy(1.0):
        wait_for_capacity({"CPU": 1.0})
        began = time.monotonic()
        with pytest.raises(PartialWork, match=r"2 x 1 GPU wanted, room for 0 after 1 s: .* CPU"):
            wait_for_capacity({"GPU": 1.0}, 2)
        assert time.monotonic() - began < 5
        assert max_workers({"CPU": 1000.0}) == 0


@pytest.mark.ray
def test_a_job_without_room_says_what_is_missing(ray_address, bert_folder, tmp_path):
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of(sentences(20))})
    words = ["embed", str(corpus), "--out", str(tmp_path / "out"), "--model", str(bert_folder)]
    words += ["--gpus-per-actor", "1", "--max-wait", "1", "--address", ray_address]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 3, done.output
    assert "1 x 1 GPU wanted, room for 0" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out/_manifest.json").exists()
    assert CliRunner().invoke(main, [w if w != "1" else "0" for w in words]).exit_code == 0


@pytest.mark.slow
def test_a_second_run_exits_or_waits(tmp_path):
    out, is_held, order = tmp_path / "out", threading.Event(), []

    def first() -> None:
        with Writer.claim(out):
            is_held.set()
            time.sleep(3)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    is_held.wait()
    with pytest.raises(BusyError), Writer.claim(out):
        pass
    with wait_policy(0.0, waits_for_lock=True), pytest.raises(BusyError):
        with Writer.claim(out, lock_when_free):
            pass
    with wait_policy(30.0, waits_for_lock=True), Writer.claim(out, lock_when_free):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


@pytest.mark.ray
def test_a_second_command_exits_with_5_or_waits(ray_address, bert_folder, tmp_path):
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of(sentences(20))})
    out = tmp_path / "out"
    words = ["embed", str(corpus), "--out", str(out), "--model", str(bert_folder)]
    words += ["--address", ray_address]
    exits = Job(words, tmp_path / "exits.log")
    waits = Job([*words, "--when-busy", "wait", "--max-wait", "120"], tmp_path / "waits.log")
    with Writer.claim(out):
        exits.start()
        waits.start()
        assert exits.wait() == 5, exits.log.read_text()
        assert "another run" in exits.log.read_text().splitlines()[-1]
        waits.until(lambda: "another run" in waits.log.read_text())
        assert waits.is_running
    assert waits.wait() == 0, waits.log.read_text()
    assert Artifact.open(out).manifest.rows == 20
