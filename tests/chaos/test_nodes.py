"""Whatever of a cluster is killed, every stage ends as if nothing had been.

`make test` kills a node under one stage, `make chaos` every kind of victim of every stage several
times and prints what each kind of death costs.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.embedding import published_bytes, rows_of, sentences, write_corpus
from support.kills import Job, descendants
from support.nodes import ROUNDS, Nodes, Stage, calm, long_form, raylet_of, struck
from support.s3 import free_ports
from support.synthetic import topical_vectors, write_vectors

from pipelines.prepare import job as prepare_job
from pipelines.prepare.spec import PrepareSpec

pytestmark = [pytest.mark.ray, pytest.mark.timeout(7200)]
SEED = int(os.environ.get("SBERT_CHAOS_SEED", "7"))
KINDS = ("driver", "worker", "node")
# Clusters are decided in the driver alone: there is no worker to kill.
ALONE = ("cluster",)


@pytest.fixture(scope="module")
def nodes():
    found = Nodes()
    yield found
    found.shutdown()


@dataclass(frozen=True)
class Inputs:
    """What stages begin with, and how they are asked to go about it."""

    folder: Path
    corpus: str
    vectors: str
    shards: str
    encode: dict[str, object]
    learn: dict[str, object]


@pytest.fixture(scope="module")
def inputs(minilm_folder, bert_folder, tmp_path_factory, nodes):
    folder = tmp_path_factory.mktemp("chaos")
    corpus = write_corpus(folder / "in", {"a.parquet": rows_of(sentences(1600, longest=80))})
    return Inputs(
        folder=folder,
        corpus=str(corpus),
        vectors=str(write_vectors(folder / "v", topical_vectors(24_000, 64))),
        # The short form has no stage that reads them.
        shards=str(scored_shards(folder, nodes.address)) if ROUNDS else "",
        encode={"model": str(minilm_folder), "unit_rows": 128, "actors": 2},
        learn={
            "base": str(bert_folder),
            "objective": "cosine",
            "epochs": 12,
            "batch_size": 4,
            "workers": 2,
            "cpus_per_worker": 1,
            "checkpoint_steps": 20,
        },
    )


@pytest.fixture(scope="module")
def stage(nodes, inputs):
    """A stage by name, run once in peace."""
    there = ["--address", nodes.address]
    words = {
        "embed": ["embed", inputs.corpus, *as_words(inputs.encode), *there],
        "index": ["index", inputs.vectors, "--shards", "6", *there],
        "pairs": ["pairs", inputs.vectors, "--threshold", "0.6", *there],
        "cluster": ["cluster", str(inputs.folder / "pairs-calm")],
        "train": ["train", inputs.shards, *as_words(inputs.learn), *there],
    }

    @cache
    def found(name: str) -> Stage:
        if name == "cluster":
            found("pairs")
        result = weights if name == "train" else published_bytes
        return calm(name, lambda out: [*words[name], "--out", str(out)], result, inputs.folder)

    return found


def as_words(options: dict[str, object]) -> list[str]:
    pairs = ((f"--{name.replace('_', '-')}", str(value)) for name, value in options.items())
    return [word for pair in pairs for word in pair]


def scored_shards(folder: Path, address: str) -> Path:
    texts = sentences(400, longest=30)
    scores = [n % 5 / 4 for n in range(200)]
    table = pa.table({"text_a": texts[:200], "text_b": texts[200:], "score": scores})
    pq.write_table(table, folder / "scored.parquet")
    place = {"files": (str(folder / "scored.parquet"),), "out": str(folder / "shards")}
    prepare_job.run(PrepareSpec(**place, format="scored", address=address))
    return folder / "shards"


def weights(out: Path) -> dict[str, str]:
    return {"weights": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()}


@pytest.fixture(scope="module")
def costs():
    """Seconds lost by stage and victim, printed at the end."""
    found: dict[tuple[str, str], list[float]] = {}
    yield found
    total = sum(len(seconds) for seconds in found.values())
    lines = [
        f"seed {SEED}: {total} kills without a loss",
        "| stage | killed | times | median s | most s |",
    ]
    lines.append("|---|---|---:|---:|---:|")
    for (stage, kind), seconds in found.items():
        cells = (stage, kind, len(seconds), statistics.median(seconds), max(seconds))
        lines.append("| {} | {} | {} | {:.1f} | {:.1f} |".format(*cells))
    print("\n" + "\n".join(lines))  # noqa: T201 - shown by `make chaos`


LONG = [pytest.param(name, marks=long_form) for name in ("embed", "index", "cluster", "train")]


@pytest.mark.parametrize("name", ["pairs", *LONG])
def test_a_death_changes_nothing(name, nodes, stage, costs, tmp_path):
    rng = random.Random(f"{SEED} {name}")
    kinds = ["driver"] if name in ALONE else list(KINDS)
    pending = kinds * ROUNDS if ROUNDS else ["node"]
    for number, kind in enumerate(pending):
        for attempt in range(5):
            out = tmp_path / f"out-{number}-{attempt}"
            cost = struck(stage(name), kind, nodes, rng, out)
            if cost is not None:
                costs.setdefault((name, kind), []).append(cost)
                break
        else:
            pytest.fail(f"nothing to kill: {name} was over too soon, five times")


@pytest.mark.long
@pytest.mark.parametrize("name", ["pairs", *LONG])
def test_sigterm_ends_in_time_and_the_rerun_goes_on(name, nodes, stage, tmp_path):
    """A scheduler that wants its machine back kills after 30 s."""
    calm_stage, rng = stage(name), random.Random(f"{SEED} term {name}")
    out = tmp_path / "out"
    job = Job(calm_stage.words(out), tmp_path / "log")
    job.start()
    if name not in ALONE:
        job.until(nodes.busy)
    time.sleep(rng.uniform(0, 0.3) * calm_stage.seconds)
    job.process.send_signal(signal.SIGTERM)
    code = job.wait(25)
    assert code in (0, 3), job.log.read_text()  # 0: it was over before it could be stopped
    assert code == 0 or "the same command goes on" in job.log.read_text().splitlines()[-1]
    job.start()
    assert job.wait() == 0, job.log.read_text()
    assert calm_stage.result(out) == calm_stage.want


@long_form
def test_sigterm_ends_in_time_though_the_cluster_answers_nobody(stage, tmp_path):
    """Slurm tells Ray to go in the same moment as the driver."""
    nodes = Nodes()
    calm_stage = stage("pairs")
    words = calm_stage.words(tmp_path / "out")
    words[words.index("--address") + 1] = nodes.address
    job = Job(words, tmp_path / "log")
    frozen: list[int] = []
    try:
        job.start()
        job.until(nodes.busy)
        frozen = nodes.processes()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        job.process.send_signal(signal.SIGTERM)
        assert job.wait(25) == 3, job.log.read_text()
        assert "the same command goes on" in job.log.read_text().splitlines()[-1]
    finally:
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        nodes.shutdown()


@long_form
def test_a_submitted_job_survives_its_driver(inputs, costs, tmp_path):
    """The driver lives in the cluster and is killed there; the next submission goes on."""
    nodes = Nodes(dashboard_port=free_ports(1)[0])
    rng = random.Random(f"{SEED} submitted")
    out, place = tmp_path / "out", tmp_path / "job.yaml"
    stages = {
        "train": {"shards": inputs.shards, **inputs.learn},
        "embed": inputs.encode,
        "index": {"shards": 2},
        "pairs": {"threshold": 0.6},
        "cluster": {},
        "report": {},
    }
    job_file = {"corpus": inputs.corpus, "out": str(out), "stages": stages}
    place.write_text(yaml.safe_dump(job_file))
    job = Job(["submit", str(place), "--address", nodes.dashboard], tmp_path / "log")
    try:
        done_in(job)  # with nothing in the caches
        shutil.rmtree(out)
        calm_seconds = done_in(job)
        want = {name: RESULTS[name](out / folder) for name, folder in SUBMITTED.items()}
        record = json.loads((out / "run.json").read_bytes())
        lasted = {stage["name"]: stage["seconds"] for stage in record["stages"]}
        for name, folder in SUBMITTED.items():
            shutil.rmtree(out)
            began = time.monotonic()
            job.start()
            job.until(lambda place=out / folder: place.exists())
            time.sleep(rng.uniform(0, 0.6) * lasted[name])
            for driver in drivers_of(nodes, place.name):
                os.kill(driver, signal.SIGKILL)
            assert job.wait() == 3, job.log.read_text()
            done_in(job)
            for own, below in SUBMITTED.items():
                assert RESULTS[own](out / below) == want[own], f"{own} after a kill under {name}"
            cost = time.monotonic() - began - calm_seconds
            costs.setdefault((name, "submitted driver"), []).append(cost)
    finally:
        nodes.shutdown()


SUBMITTED = {
    "train": "encoder",
    "embed": "vectors",
    "index": "index",
    "pairs": "pairs",
    "cluster": "clusters",
}
RESULTS = {name: weights if name == "train" else published_bytes for name in SUBMITTED}


def done_in(job: Job) -> float:
    began = time.monotonic()
    job.start()
    assert job.wait() == 0, job.log.read_text()
    return time.monotonic() - began


def drivers_of(nodes: Nodes, name: str) -> list[int]:
    below = descendants([raylet_of(nodes.cluster.head_node)])
    return [pid for pid, title in below.items() if f"sbert run {name}" in title]
