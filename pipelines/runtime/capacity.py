"""Waiting for room on a cluster: what is missing is said, and the wait has an end."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping

import ray
from ray.autoscaler.sdk import request_resources

from pipelines.artifacts.errors import PartialWork
from pipelines.runtime.session import is_embedded
from pipelines.runtime.wait_policy import current_patience

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
SILENT_SECONDS = 3.0  # resources of a task that has just ended are counted with a delay
SAID_EVERY_SECONDS = 30.0


def wait_for_room(bundle: Mapping[str, float], number: int = 1) -> None:
    """Return when so many workers fit on the cluster; PartialWork if they do not in time.

    An autoscaler that could add nodes is asked for them. An embedded Ray does not grow, so there
    the caller's own check has the word.
    """
    if is_embedded() or (room := num_fitting(bundle)) >= number:
        return
    began = time.monotonic()
    said = began - SAID_EVERY_SECONDS + SILENT_SECONDS
    with _asked_for(bundle, number):
        while (room := num_fitting(bundle)) < number:
            now = time.monotonic()
            wanted = f"{number} x {_words(bundle)}"
            if now - began > current_patience().seconds:
                raise PartialWork(
                    f"{wanted} wanted, room for {room} after {now - began:,.0f} s: {_found()}; add "
                    "nodes, wait longer (--max-wait) or ask for less; the same command goes on"
                )
            if now - said >= SAID_EVERY_SECONDS:
                said = now
                log.info("waiting for %s: room for %d, %s", wanted, room, _found())
            time.sleep(POLL_SECONDS)


def num_fitting(bundle: Mapping[str, float]) -> int:
    """How many such workers the nodes could hold, of what is not in use."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    by_node = sum(_fitting(node, bundle) for node in nodes)
    return min(by_node, _fitting(ray.available_resources(), bundle))


def _fitting(resources: Mapping[str, float], bundle: Mapping[str, float]) -> int:
    return min(int(resources.get(kind, 0) / amount) for kind, amount in bundle.items() if amount)


@contextlib.contextmanager
def _asked_for(bundle: Mapping[str, float], number: int) -> Iterator[None]:
    """A standing wish at the autoscaler, taken back at the end; nodes in use stay."""
    request_resources(bundles=[dict(bundle)] * number)
    try:
        yield
    finally:
        request_resources(bundles=[])


def _found() -> str:
    free, there = ray.available_resources(), ray.cluster_resources()
    kinds = [kind for kind in ("CPU", "GPU") if kind in there or kind in free]
    parts = [f"{free.get(kind, 0):g} of {there.get(kind, 0):g} {kind} are free" for kind in kinds]
    return ", ".join(parts) or "the cluster has no CPU and no GPU"


def _words(bundle: Mapping[str, float]) -> str:
    return " and ".join(f"{amount:g} {kind}" for kind, amount in bundle.items() if amount)
