"""Whatever of a cluster is killed, every stage ends as if nothing had been.

`make test` kills a node under two stages, `make chaos` every kind of victim of every stage several
times and prints what each kind of death costs.
"""

import hashlib
import os
import random
import signal
import statistics
import time
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from embedding import published_bytes, rows_of, sentences, write_corpus
from kills import Job, descendants
from nodes import ROUNDS, Nodes, Stage, calm, long_form, raylet_of, struck
from s3 import free_ports
from synthetic import topical_vectors, write_vectors

from pipelines import prepare as prepare_job
from pipelines.specs import PrepareSpec

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


@pytest.fixture(scope="module")
def stage(nodes, minilm_folder, bert_folder, tmp_path_factory, ray_address):
    """A stage by name, run once in peace."""
    folder = tmp_path_factory.mktemp("chaos")
    there = ["--address", nodes.address]
    corpus = write_corpus(folder / "in", {"a.parquet": rows_of(sentences(1600, longest=80))})
    vectors = str(write_vectors(folder / "v", topical_vectors(24_000, 64)))
    shards = str(scored_shards(folder, ray_address))
    encode = ["--model", str(minilm_folder), "--unit-rows", "128", "--actors", "2"]
    learn = ["--objective", "cosine", "--epochs", "12", "--batch-size", "4", "--workers", "2"]
    learn += ["--cpus-per-worker", "1", "--checkpoint-steps", "20", "--base", str(bert_folder)]
    words = {
        "embed": ["embed", str(corpus), *encode, *there],
        "index": ["index", vectors, "--shards", "6", *there],
        "pairs": ["pairs", vectors, "--threshold", "0.6", *there],
        "cluster": ["cluster", str(folder / "pairs-calm")],
        "train": ["train", shards, *learn, *there],
    }

    @cache
    def found(name: str) -> Stage:
        if name == "cluster":
            found("pairs")
        result = weights if name == "train" else published_bytes
        return calm(name, lambda out: [*words[name], "--out", str(out)], result, folder)

    return found


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
        f"seed {SEED}: {total} kills, 0 losses",
        "| stage | killed | times | median s | most s |",
    ]
    lines.append("|---|---|---:|---:|---:|")
    for (stage, kind), seconds in found.items():
        cells = (stage, kind, len(seconds), statistics.median(seconds), max(seconds))
        lines.append("| {} | {} | {} | {:.1f} | {:.1f} |".format(*cells))
    print("\n" + "\n".join(lines))  # noqa: T201 - shown by `make chaos`


LONG = [pytest.param(name, marks=long_form) for name in ("index", "cluster", "train")]


@pytest.mark.parametrize("name", ["embed", "pairs", *LONG])
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


@pytest.mark.parametrize("name", ["pairs", pytest.param("embed", marks=long_form), *LONG])
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
def test_a_submitted_job_survives_its_driver(stage, tmp_path):
    """The driver lives in the cluster and is killed there; the next submission goes on."""
    nodes = Nodes(dashboard_port=free_ports(1)[0])
    calm_stage, rng = stage("embed"), random.Random(f"{SEED} submitted")
    try:
        for number in range(ROUNDS):
            out = tmp_path / f"run-{number}"
            words = calm_stage.words(out / "vectors")
            options = {"model": words[words.index("--model") + 1], "unit_rows": 128, "actors": 2}
            job_file = {"corpus": words[1], "out": str(out), "stages": {"embed": options}}
            place = tmp_path / f"job-{number}.yaml"
            place.write_text(yaml.safe_dump(job_file))
            job = Job(["submit", str(place), "--address", nodes.dashboard], tmp_path / "log")
            job.start()
            [driver, *_] = job.until(lambda name=place.name: drivers_of(nodes, name))
            job.until(lambda out=out: list(out.glob("vectors/_work/*/commits/*")))
            time.sleep(rng.uniform(0, 0.3) * calm_stage.seconds)
            os.kill(driver, signal.SIGKILL)
            assert job.wait() == 3, job.log.read_text()
            job.start()
            assert job.wait() == 0, job.log.read_text()
            assert published_bytes(out / "vectors") == calm_stage.want
    finally:
        nodes.shutdown()


def drivers_of(nodes: Nodes, name: str) -> list[int]:
    below = descendants([raylet_of(nodes.cluster.head_node)])
    return [pid for pid, title in below.items() if f"sbert run {name}" in title]
