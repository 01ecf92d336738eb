"""A cluster that changes under a job: nodes join, are drained, are slow, or run out of memory."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.embedding import published_bytes, rows_of, sentences, write_corpus
from support.kills import Job, descendants
from support.nodes import Nodes, long_form, raylet_of
from support.sabotage import sabotaged
from support.synthetic import topical_vectors, write_vectors

from pipelines.runtime.capacity import max_workers, wait_for_capacity
from pipelines.runtime.session import job_session
from pipelines.runtime.wait_policy import wait_policy

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
RAY = Path(sys.executable).parent / "ray"
# The slow node has a fifth of the speed of the other.
RUN_SECONDS, STOP_SECONDS = 0.1, 0.4


@pytest.fixture
def nodes():
    found = Nodes(1)
    yield found
    found.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elastic")
    return write_corpus(folder, {"a.parquet": rows_of(sentences(2400, longest=80))})


def job_of(corpus, out, model, nodes, *words) -> Job:
    words = ["embed", str(corpus), "--out", str(out), "--model", str(model), *words]
    words += ["--unit-rows", "64", "--cpus-per-actor", "1", "--address", nodes.address]
    return Job(words, out.with_suffix(".log"))


def commits(out) -> int:
    return len(list(out.glob("_work/*/commits/*")))


def actors_of(node) -> list[int]:
    below = descendants([raylet_of(node)])
    return [pid for pid, title in below.items() if "UnitEmbedder" in title]


@long_form
def test_a_node_that_joins_is_used(nodes, corpus, minilm_folder, tmp_path):
    job = job_of(corpus, tmp_path / "out", minilm_folder, nodes)
    job.start()
    job.until(lambda: commits(tmp_path / "out") >= 1)
    node = nodes.add()
    job.until(lambda: actors_of(node))
    assert job.wait() == 0, job.log.read_text()


@long_form
def test_room_that_comes_is_taken(nodes, tmp_path):
    with job_session(str(tmp_path), nodes.address), wait_policy(60.0):
        assert max_workers({"lamp": 1.0}) == 0
        nodes.add(resources={"lamp": 2})
        wait_for_capacity({"lamp": 1.0}, 2)
        assert max_workers({"lamp": 1.0}) == 2


@long_form
def test_a_drained_node_is_left(nodes, corpus, minilm_folder, tmp_path):
    node = nodes.add()
    job = job_of(corpus, tmp_path / "out", minilm_folder, nodes, "--actors", "2")
    job.start()
    job.until(lambda: actors_of(node) and commits(tmp_path / "out") >= 1)
    words = [RAY, "drain-node", "--address", nodes.address, "--node-id", node.node_id]
    words += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "a test"]
    subprocess.run([*words, "--deadline-remaining-seconds", "5"], check=True, timeout=60)
    assert job.wait() == 0, job.log.read_text()
    nodes.workers.remove(node)
    deadline = time.monotonic() + 60
    while node.node_id in alive(nodes.address):
        assert time.monotonic() < deadline, "the drained node is still there"
        time.sleep(1)
    calm = job_of(corpus, tmp_path / "calm", minilm_folder, nodes)
    calm.start()
    assert calm.wait() == 0, calm.log.read_text()
    assert published_bytes(tmp_path / "out") == published_bytes(tmp_path / "calm")


ALIVE = """
import ray
ray.init(address={!r}, logging_level=40)
print(*[node["NodeID"] for node in ray.nodes() if node["Alive"]])
"""


def alive(address: str) -> set[str]:
    """Nodes of a cluster, asked from outside: this process may belong to another one."""
    words = [sys.executable, "-c", ALIVE.format(address)]
    return set(subprocess.run(words, capture_output=True, text=True, timeout=60).stdout.split())


@long_form
def test_a_slow_node_does_not_hold_the_job(nodes, corpus, minilm_folder, tmp_path):
    """With a slow node beside it, the fast one ends at most a tenth later than alone."""
    took = {}
    for name in ("alone", "beside"):
        slow = nodes.add() if name == "beside" else None
        job = job_of(
            corpus, tmp_path / name, minilm_folder, nodes, "--actors", "1" if slow is None else "2"
        )
        job.start()
        job.until(lambda name=name: commits(tmp_path / name) >= 1)
        stop = threading.Event()
        thread = threading.Thread(target=slowed, args=(slow, stop))
        thread.start()
        began = time.monotonic()
        try:
            assert job.wait() == 0, job.log.read_text()
        finally:
            stop.set()
            thread.join()
        took[name] = time.monotonic() - began
    print(f"alone {took['alone']:.1f} s, beside a slow node {took['beside']:.1f} s")  # noqa: T201
    assert took["beside"] < 1.1 * took["alone"] + 5


def slowed(node, stop: threading.Event) -> None:
    """Let the actors of a node run a fifth of the time."""
    while node is not None and not stop.wait(RUN_SECONDS):
        held = actors_of(node)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in held:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            if number == signal.SIGSTOP:
                time.sleep(STOP_SECONDS)


@long_form
def test_tasks_without_memory_end(tmp_path, monkeypatch):
    """Ray's memory monitor kills every worker at once; the job gives up after some tries."""
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.01")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    write_vectors(tmp_path / "v", topical_vectors(24_000, 64))
    nodes = Nodes(1)
    try:
        words = ["pairs", str(tmp_path / "v"), "--threshold", "0.6", "--address", nodes.address]
        job = Job([*words, "--out", str(tmp_path / "out")], tmp_path / "out.log")
        job.start()
        assert job.wait(300) == 3, job.log.read_text()
    finally:
        nodes.shutdown()
    last = job.log.read_text().splitlines()[-1]
    assert "killed again and again for lack of memory" in last, last
    assert not (tmp_path / "out" / "_manifest.json").exists()


@long_form
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("sabotage", "reason"),
    [("hungry", "workers died on rows"), ("heavy", "while it loaded the model")],
)
def test_an_actor_without_memory_ends(
    corpus, minilm_folder, tmp_path, monkeypatch, sabotage, reason
):
    """A model that takes 6 GB where 4 are left, to encode or to load: not tried for ever."""
    nodes = Nodes(0)  # its head is spared: on a real cluster it has a memory of its own
    total, free = (memory()[name] for name in ("MemTotal", "MemAvailable"))
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{(total - free + 4 * 2**20) / total:.3f}")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    for name, value in sabotaged(tmp_path, sabotage).items():
        monkeypatch.setenv(name, value)
    try:
        nodes.add()
        job = job_of(corpus, tmp_path / "out", minilm_folder, nodes)
        job.start()
        assert job.wait(1200) == 3, job.log.read_text()
    finally:
        nodes.shutdown()
    last = job.log.read_text().splitlines()[-1]
    assert reason in last and "look for a lack of memory" in last, last
    assert not (tmp_path / "out" / "_manifest.json").exists()


def memory() -> dict[str, int]:
    """Of this machine, in KB."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {name.rstrip(":"): int(value) for name, value, *_ in lines}
