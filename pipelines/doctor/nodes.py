"""One function called on every node; its result, or the reason why there is none.

In:  a function that any node can run.
Out: a NodeAnswer by node, within a deadline: a node that does not answer delays the check, and does
     not end it.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar, TypeVarTuple

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipelines.runtime.tasks import unwrap_errors
from workers.doctor.node import ClockSkew, read_clock

CLOCK_TRIES = 3
CLOCK_SECONDS = 10.0
ERROR_CHARS = 200

Value = TypeVar("Value")
Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node of the cluster as Ray lists it. folder: of Ray's session there."""

    id: str
    name: str
    folder: str
    num_gpus: float
    object_store_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer(Generic[Value]):
    """What a call returned, or why it did not. silence: None if there is a value."""

    value: Value | None = None
    silence: str | None = None


def list_nodes() -> list[ClusterNode]:
    """All nodes that are alive; nodes of one host get a part of their id in their name."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    hosts = [node["NodeManagerHostname"] for node in alive]
    return [
        ClusterNode(
            id=node["NodeID"],
            name=host if hosts.count(host) == 1 else f"{host}-{node['NodeID'][:6]}",
            folder=node["ObjectStoreSocketName"].rpartition("/sockets/")[0] or "/tmp",
            num_gpus=node["Resources"].get("GPU", 0.0),
            object_store_bytes=int(node["Resources"].get("object_store_memory", 0)),
        )
        for node, host in zip(alive, hosts, strict=True)
    ]


def call_on_nodes(
    function: Callable[[*Arguments], Value],
    calls: Iterable[tuple[ClusterNode, tuple[*Arguments]]],
    seconds: float,
) -> dict[str, NodeAnswer[Value]]:
    """Call a function on each node. calls: a node and the arguments. The answers by node id."""
    task = ray.remote(num_cpus=0, max_retries=0)(function)
    # Ray's types take a function of unknown parameters for one that has none.
    wanted: Iterable[tuple[ClusterNode, tuple[object, ...]]] = calls
    running = {
        node.id: task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
        ).remote(*arguments)
        for node, arguments in wanted
    }
    if not running:
        return {}
    done, late = ray.wait(list(running.values()), num_returns=len(running), timeout=seconds)
    for reference in late:
        ray.cancel(reference, force=True)
    too_late: NodeAnswer[Value] = NodeAnswer(silence=f"no answer within {seconds:.0f} s")
    return {
        node_id: call_here(_fetch, (reference,)) if reference in done else too_late
        for node_id, reference in running.items()
    }


def _fetch(reference: "ray.ObjectRef[Value]") -> Value:
    with unwrap_errors():
        return ray.get(reference)


def call_here(
    function: Callable[[*Arguments], Value], arguments: tuple[*Arguments]
) -> NodeAnswer[Value]:
    """Call a function in this process, with errors as answers."""
    try:
        return NodeAnswer(value=function(*arguments))
    except (RayError, Exception) as error:  # noqa: BLE001 - any error is the answer of the machine
        return NodeAnswer(silence=short_error(error))


def short_error(error: Exception) -> str:
    """Class and first line of an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:ERROR_CHARS]


def measure_skew(node: ClusterNode) -> ClockSkew | None:
    """The clock of a node, by the fastest of a few round trips; None if it does not answer."""
    tries = []
    for _ in range(CLOCK_TRIES):
        sent = time.time()
        answer = call_on_nodes(read_clock, [(node, ())], CLOCK_SECONDS)[node.id]
        received = time.time()
        if answer.value is None:
            return None
        middle = (sent + received) / 2
        tries.append(ClockSkew(answer.value - middle, (received - sent) / 2))
    return min(tries, key=lambda skew: skew.error)
