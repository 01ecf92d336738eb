"""What a command starts ends with it, however it ends; nobody else is harmed."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.embedding import rows_of, sentences, write_corpus
from support.kills import Job, processes_until_end, started_at

from pipelines.runtime import reaper

# A minute is promised. Left alone, Ray's agents need more than 25 s after a kill -9.
MOST_SECONDS = 20.0
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def left_of(processes):
    """Those that are still there after a while, by number; they are ended."""
    deadline = time.monotonic() + MOST_SECONDS
    while left := [pid for pid, start in processes.items() if started_at(pid) == start]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def test_guard_ends_writers_of_its_folder_and_nobody_else(tmp_path):
    home, beside = tmp_path / "home", tmp_path / "home-of-another"
    with ExitStack() as stack:

        def started(path, mode):
            path.parent.mkdir(exist_ok=True)
            file = stack.enter_context(path.open(mode))
            process = subprocess.Popen(SLEEP, stdout=file)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        writer = started(home / "worker.out", "w")
        own_log = f"driver_{os.getpid()}.log"
        others = {
            "writer elsewhere": started(beside / "worker.out", "w"),
            "reader": started(home / "worker.out", "r"),
            "fork of the driver": started(home / own_log, "w"),
        }
        words = [sys.executable, "-I", "-S", reaper.__file__, str(home), str(os.getpid())]
        watching = subprocess.Popen(words, stdin=subprocess.PIPE)
        assert writer.poll() is None
        watching.communicate(timeout=60)
        assert writer.wait(60) == -signal.SIGKILL
        assert {name for name, process in others.items() if process.poll() is not None} == set()


DRIVER = """
import os, pathlib, ray, signal, sys, time
from pipelines.runtime.session import ray_session

note = pathlib.Path(sys.argv[1]) / "pid"

@ray.remote
def stand_still():  # as a controller of Ray Train does that does not get over its exit
    note.write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)

with ray_session(pathlib.Path(sys.argv[1]), num_cpus=1):
    result = stand_still.remote()
    while not note.exists() or not note.read_text():
        time.sleep(0.05)
    print(note.read_text(), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.ray
@pytest.mark.parametrize("is_killed", [False, True], ids=["end", "kill"])
def test_worker_that_never_ends_by_itself_is_ended_with_its_driver(is_killed, tmp_path):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(driver.stdout.readline())
    worker = {pid: started_at(pid)}
    if is_killed:
        driver.kill()
    driver.communicate()
    assert left_of(worker) == []


STAGES = {
    "prepare": {"files": ["lines.parquet"], "format": "ranking"},
    "train": {"objective": "ranking", "epochs": 4, "cpus_per_worker": 1},
    "evaluate": {"models": ["run/encoder"], "sts": ["sts.parquet"]},
    "embed": {"unit_rows": 16},
    "index": {},
    "pairs": {"threshold": 0.999},
    "cluster": {},
    "apply": {},
    "report": {},
}


def job_of(stages, folder, model):
    """A job with a home and a folder for temporary files of its own."""
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    texts = sentences(60)
    write_corpus(folder / "in", {"a.parquet": rows_of([*texts, *texts[:5]])})
    lines = pa.table({"query": texts[:30], "positive": texts[30:60]})
    pq.write_table(lines, folder / "lines.parquet")
    scored = pa.table({"sentence1": texts[:9], "sentence2": texts[9:18], "score": [0.1] * 9})
    pq.write_table(scored, folder / "sts.parquet")
    own = {name: dict(STAGES[name]) for name in stages}
    if "train" in own:
        own["train"]["base"] = str(model)
    else:
        own["embed"]["model"] = str(model)
    job = {"corpus": "in", "out": "run", "stages": own}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    places = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
    return Job(["run", str(folder / "job.yaml")], folder / "log", places)


@pytest.mark.ray
@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    ("stages", "stop", "at"),
    [
        pytest.param(
            ["prepare", "train"], signal.SIGKILL, "ray::RayTrainWorker", marks=pytest.mark.long
        ),
        pytest.param(
            ["prepare", "train"], signal.SIGTERM, "ray::TrainController", marks=pytest.mark.long
        ),
        (["embed"], signal.SIGKILL, "UnitEmbedder"),
    ],
    ids=["kill in train", "term in train", "kill in embed"],
)
def test_command_killed_or_stopped_leaves_no_process(stages, stop, at, bert_folder, tmp_path):
    job = job_of(stages, tmp_path, bert_folder)
    assert left_of(processes_until_end(job, stop, at)) == []
    assert job.wait() == (3 if stop is signal.SIGTERM else -stop), job.log.read_text()


@pytest.mark.ray
@pytest.mark.timeout(480)
def test_command_of_all_stages_leaves_its_artifacts_and_nothing_else(bert_folder, tmp_path):
    job = job_of(STAGES, tmp_path, bert_folder)
    assert left_of(processes_until_end(job)) == []
    assert job.wait() == 0, job.log.read_text()
    assert not list((tmp_path / "run").glob("_*"))
    assert [path for name in ("home", "tmp") for path in (tmp_path / name).iterdir()] == []
