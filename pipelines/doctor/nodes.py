"""One question to every node, one answer or the reason why there is none.

In:  a function any node can run.
Out: an Answer by node, within a deadline: a node that is silent costs time, not the whole.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipelines.runtime.tasks import own_error
from workers.doctor.node import Clock, clock

CLOCK_TRIES = 3
CLOCK_SECONDS = 10.0
SAID_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the cluster as Ray announces it. folder: of Ray's session there."""

    id: str
    name: str
    folder: str
    num_gpus: float
    object_store_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a node said, or why it said nothing."""

    value: Any = None
    silence: str | None = None


def living_nodes() -> list[Node]:
    alive = [node for node in ray.nodes() if node["Alive"]]
    hosts = [node["NodeManagerHostname"] for node in alive]
    return [
        Node(
            id=node["NodeID"],
            name=host if hosts.count(host) == 1 else f"{host}-{node['NodeID'][:6]}",
            folder=node["ObjectStoreSocketName"].rpartition("/sockets/")[0] or "/tmp",
            num_gpus=node["Resources"].get("GPU", 0.0),
            object_store_bytes=int(node["Resources"].get("object_store_memory", 0)),
        )
        for node, host in zip(alive, hosts, strict=True)
    ]


def answers(
    function: Callable, calls: Iterable[tuple[Node, tuple]], seconds: float
) -> dict[str, Answer]:
    """The answer of each node by its id; calls: a node and what it is asked."""
    task: Any = ray.remote(num_cpus=0, max_retries=0)(function)
    asked = {
        node.id: task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
        ).remote(*arguments)
        for node, arguments in calls
    }
    if not asked:
        return {}
    done, late = ray.wait(list(asked.values()), num_returns=len(asked), timeout=seconds)
    for reference in late:
        ray.cancel(reference, force=True)
    return {
        name: _answer(reference)
        if reference in done
        else Answer(silence=f"no answer within {seconds:.0f} s")
        for name, reference in asked.items()
    }


def _answer(reference: Any) -> Answer:  # noqa: ANN401
    try:
        with own_error():
            return Answer(value=ray.get(reference))
    except RayError as error:
        return Answer(silence=said(error))
    except Exception as error:  # noqa: BLE001 - whatever a node runs into is its answer
        return Answer(silence=said(error))


def said(error: Exception) -> str:
    """An error in few words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:SAID_CHARS]


def clock_of(node: Node) -> Clock | None:
    """By the fastest of a few round trips; None if the node is silent."""
    found = []
    for _ in range(CLOCK_TRIES):
        asked = time.time()
        answer = answers(clock, [(node, ())], CLOCK_SECONDS)[node.id]
        answered = time.time()
        if answer.silence is not None:
            return None
        middle = (asked + answered) / 2
        found.append(Clock(answer.value - middle, (answered - asked) / 2))
    return min(found, key=lambda own: own.error)
