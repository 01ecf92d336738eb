"""Capacity of a cluster: wait until workers fit, and refuse what can never fit."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping

import ray
from ray.autoscaler.sdk import request_resources

from pipelines.artifacts.errors import PartialWork
from pipelines.runtime.session import is_embedded
from pipelines.runtime.wait_policy import current_wait_policy
from sbert_core.errors import TransientError

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
SILENT_SECONDS = 3.0  # resources of a task that has just ended are counted with a delay
LOG_EVERY_SECONDS = 30.0


def wait_for_capacity(bundle: Mapping[str, float], number: int = 1) -> None:
    """Return when `number` workers of these resources fit; PartialWork if they do not in time.

    Nodes are requested from an autoscaler, where there is one. An embedded Ray cannot grow: it
    returns at once, and the caller checks the capacity.
    """
    if is_embedded() or (num_free := max_workers(bundle)) >= number:
        return
    start = time.monotonic()
    logged = start - LOG_EVERY_SECONDS + SILENT_SECONDS
    with _request_nodes(bundle, number):
        while (num_free := max_workers(bundle)) < number:
            now = time.monotonic()
            wanted = f"{number} x {_describe(bundle)}"
            if now - start > current_wait_policy().seconds:
                raise PartialWork(
                    f"{wanted} wanted, room for {num_free} after {now - start:,.0f} s: "
                    f"{_describe_cluster()}; add nodes, wait longer (--max-wait) or ask for less; "
                    "the same command goes on"
                )
            if now - logged >= LOG_EVERY_SECONDS:
                logged = now
                log.info("waiting for %s: room for %d, %s", wanted, num_free, _describe_cluster())
            time.sleep(POLL_SECONDS)


def check_capacity(bundle: Mapping[str, float], number: int, remedy: str) -> None:
    """TransientError if the nodes are too small for the workers, which Ray would wait for."""
    num_fitting = sum(_num_fitting(node, bundle) for node in _nodes())
    if num_fitting < number:
        raise TransientError(
            f"{number} workers of {_describe(bundle)} each do not fit, {num_fitting} do; {remedy}"
        )


def max_workers(bundle: Mapping[str, float]) -> int:
    """How many workers of these resources fit into what is free."""
    by_node = sum(_num_fitting(node, bundle) for node in _nodes())
    return min(by_node, _num_fitting(ray.available_resources(), bundle))


def _nodes() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _num_fitting(resources: Mapping[str, float], bundle: Mapping[str, float]) -> int:
    return min(int(resources.get(kind, 0) / amount) for kind, amount in bundle.items() if amount)


@contextlib.contextmanager
def _request_nodes(bundle: Mapping[str, float], number: int) -> Iterator[None]:
    """Request nodes from the autoscaler; cancel the request on exit. Nodes in use stay."""
    request_resources(bundles=[dict(bundle)] * number)
    try:
        yield
    finally:
        request_resources(bundles=[])


def _describe_cluster() -> str:
    free, total = ray.available_resources(), ray.cluster_resources()
    kinds = [kind for kind in ("CPU", "GPU") if kind in total or kind in free]
    parts = [f"{free.get(kind, 0):g} of {total.get(kind, 0):g} {kind} are free" for kind in kinds]
    return ", ".join(parts) or "the cluster has no CPU and no GPU"


def _describe(bundle: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {kind}" for kind, amount in bundle.items() if amount)
