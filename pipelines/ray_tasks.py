"""Plain Ray tasks for every job: a bounded number at a time, errors as what they are."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

TASKS_PER_CPU = 2


def in_order(function: Callable, calls: Sequence[tuple]) -> list:
    """The result of a task for each call, in the order of calls."""
    results = dict(as_they_come(function, calls))
    return [results[number] for number in range(len(calls))]


def as_they_come(function: Callable, calls: Sequence[tuple]) -> Iterator[tuple[int, Any]]:
    """The number and the result of each call, the first to end first."""
    remote: Any = ray.remote(function)
    limit = max(2, TASKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1)))
    waiting = list(enumerate(calls))[::-1]
    running: dict[Any, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < limit:
                number, arguments = waiting.pop()
                running[remote.remote(*arguments)] = number
            done, _ = ray.wait(list(running), num_returns=1)
            with own_error():
                yield running.pop(done[0]), ray.get(done[0])
    finally:
        # After an error nothing may go on writing behind the back of the next attempt.
        if running:
            ray.wait(list(running), num_returns=len(running))


@contextlib.contextmanager
def own_error() -> Iterator[None]:
    """An error of our own code in a worker, raised here without Ray's wrapping."""
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, RayError):
            raise
        raise error.cause from None
