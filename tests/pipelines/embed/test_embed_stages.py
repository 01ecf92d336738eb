"""The stages beside GPUs, on nodes that only say they have some, against one actor for all."""

import os
import signal
from contextlib import suppress

import pytest
from support.embedding import published_bytes, rows_of, sentences, write_corpus
from support.kills import Job, descendants
from support.nodes import Nodes, raylet_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def nodes():
    """A head, and a node with CPUs and what Ray takes for two GPUs."""
    found = Nodes(0)
    found.add(num_cpus=4, num_gpus=2)
    yield found
    found.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Repeats within units, across units and files, and bad rows."""
    texts = sentences(600, longest=40)
    files = {
        "a.parquet": rows_of([*texts[:300], None, texts[3], ""]),
        "b.parquet": rows_of([*texts[200:], texts[0], texts[599]], 1000),
    }
    return write_corpus(tmp_path_factory.mktemp("corpus"), files)


def job_of(corpus, out, model, nodes, *words) -> Job:
    words = ["embed", str(corpus), "--out", str(out), "--model", str(model), *words]
    words += ["--unit-rows", "64", "--cpus-per-actor", "1", "--address", nodes.address]
    return Job(words, out.with_suffix(".log"))


@pytest.fixture(scope="module")
def want(corpus, nodes, bert_folder, tmp_path_factory):
    """What one actor for all stages publishes."""
    out = tmp_path_factory.mktemp("want") / "out"
    job = job_of(corpus, out, bert_folder, nodes, "--gpus-per-actor", "0")
    job.start()
    assert job.wait() == 0, job.log.read_text()
    return published_bytes(out)


def test_stages_publish_the_bytes_of_one_actor(corpus, nodes, want, bert_folder, tmp_path):
    job = job_of(corpus, tmp_path / "out", bert_folder, nodes)
    job.start()
    seen: set[str] = set()

    def all_stages() -> bool:
        below = descendants([raylet_of(node) for node in nodes.workers]).values()
        seen.update(
            stage
            for stage in ("UnitTokenizer", "UnitEncoder", "write_encoded")
            if any(stage in title for title in below)
        )
        return len(seen) == 3 or not job.is_running

    job.until(all_stages)
    assert job.wait() == 0, job.log.read_text()
    assert seen == {"UnitTokenizer", "UnitEncoder", "write_encoded"}
    assert published_bytes(tmp_path / "out") == want


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["UnitTokenizer", "UnitEncoder", "write_encoded"])
def test_nothing_is_lost_when_a_stage_dies(corpus, nodes, want, bert_folder, tmp_path, stage):
    job = job_of(corpus, tmp_path / "out", bert_folder, nodes)
    job.start()

    def victims() -> list[int]:
        below = descendants([raylet_of(node) for node in nodes.workers])
        return [pid for pid, title in below.items() if stage in title]

    for pid in job.until(victims):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert job.wait() == 0, job.log.read_text()
    assert published_bytes(tmp_path / "out") == want
