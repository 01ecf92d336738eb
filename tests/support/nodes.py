"""A cluster of several nodes on this machine, and jobs on it that are struck at random moments."""

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from support.kills import Job, descendants
from support.s3 import free_ports

# A dead node is found out after 3 s instead of 20.
QUICK = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
NODE = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
# Kills of each kind of victim of each stage; none in `make test`, which takes the short form.
ROUNDS = int(os.environ.get("SBERT_CHAOS_ROUNDS", "0"))
long_form = pytest.mark.skipif(not ROUNDS, reason="takes minutes: make chaos")
IDLE = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")


class Nodes:
    """A head that does no work, where drivers live, and nodes that do, which may die."""

    def __init__(self, number: int = 2, dashboard_port: int | None = None) -> None:
        os.environ.update(QUICK)
        head = {"num_cpus": 0, "object_store_memory": 150 * 2**20, "include_dashboard": False}
        if dashboard_port is not None:
            # Its agent takes jobs, at a port that only one head of a machine can have by itself.
            [agent_port] = free_ports(1)
            head |= {"include_dashboard": True, "dashboard_port": dashboard_port}
            head |= {"dashboard_agent_listen_port": agent_port}
        self.dashboard = f"http://127.0.0.1:{dashboard_port}"
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.workers = [self.cluster.add_node(**NODE) for _ in range(number)]
        self.cluster.wait_for_nodes()
        self.address = self.cluster.address

    def add(self, **options: Any) -> Any:  # noqa: ANN401
        node = self.cluster.add_node(**{**NODE, **options})
        self.workers.append(node)
        return node

    def kill(self, rng: random.Random) -> None:
        """kill -9 of a node's raylet, and with it of everything the node does; a new one comes."""
        node = self.workers.pop(rng.randrange(len(self.workers)))
        self.cluster.remove_node(node, allow_graceful=False)
        self.add()

    def busy(self) -> list[int]:
        """Processes that work for a job."""
        raylets = [raylet_of(node) for node in self.workers]
        return [
            pid
            for pid, title in descendants(raylets).items()
            if title.startswith("ray::") and not title.startswith(IDLE)
        ]

    def processes(self) -> list[int]:
        """Everything that runs on any node."""
        nodes = [self.cluster.head_node, *self.workers]
        kinds = [kind for node in nodes for kind in node.all_processes.values()]
        own = [info.process.pid for kind in kinds for info in kind]
        return [*own, *descendants(own)]

    def shutdown(self) -> None:
        self.cluster.shutdown()
        for name in QUICK:
            os.environ.pop(name, None)


def raylet_of(node: Any) -> int:  # noqa: ANN401
    return node.all_processes["raylet"][0].process.pid


@dataclass(frozen=True)
class Stage:
    """A command, and what must be the same however it was disturbed.

    words: of an output folder. seconds: of an undisturbed run, on the same nodes.
    """

    name: str
    words: Callable[[Path], list[str]]
    result: Callable[[Path], dict[str, str]]
    want: dict[str, str]
    seconds: float


def calm(name: str, words: Callable, result: Callable, folder: Path) -> Stage:
    """The stage, after runs in peace; two where time counts: the first finds cold caches."""
    seconds, results = [], []
    for out in (folder / f"{name}-cold", folder / f"{name}-calm")[not ROUNDS :]:
        began = time.monotonic()
        job = Job(words(out), folder / f"{name}.log")
        job.start()
        assert job.wait() == 0, job.log.read_text()
        seconds.append(time.monotonic() - began)
        results.append(result(out))
    assert results[0] == results[-1]
    return Stage(name, words, result, results[0], min(seconds))


def struck(stage: Stage, kind: str, nodes: Nodes, rng: random.Random, out: Path) -> float | None:
    """Run the stage, kill something once, see that nothing is lost; what it cost in seconds.

    None if the job was over before there was anything to kill. Workers and nodes may die without
    the command being given again; after the death of the driver it is.
    """
    job = Job(stage.words(out), out.with_suffix(".log"))
    began = time.monotonic()
    job.start()
    is_struck = _strike(job, kind, nodes, rng, stage.seconds)
    code = job.wait()
    if kind == "driver" and is_struck:
        assert code == -signal.SIGKILL
        job.start()
        code = job.wait()
    assert code == 0, job.log.read_text()
    assert stage.result(out) == stage.want, f"{stage.name} differs after the death of a {kind}"
    return time.monotonic() - began - stage.seconds if is_struck else None


def _strike(job: Job, kind: str, nodes: Nodes, rng: random.Random, seconds: float) -> bool:
    if kind == "driver":
        time.sleep(rng.uniform(0.2, 0.9) * seconds)
        if job.is_running:
            job.kill(wait=False)
            return True
        return False
    while job.is_running:
        if nodes.busy():
            time.sleep(rng.uniform(0, 0.4) * seconds)
            busy = nodes.busy()
            if not busy or not job.is_running:
                continue
            if kind == "node":
                nodes.kill(rng)
                return True
            try:
                os.kill(rng.choice(busy), signal.SIGKILL)
                return True
            except ProcessLookupError:
                continue
        time.sleep(0.02)
    return False
