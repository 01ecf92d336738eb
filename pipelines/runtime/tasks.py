"""Plain Ray tasks for every job: a bounded number at a time, errors as what they are.

Tasks write files that are whole or not there, so one that was abandoned leaves nothing wrong.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from pipelines.artifacts.errors import PartialWork
from pipelines.runtime.capacity import wait_for_room
from pipelines.runtime.metrics import observe
from pipelines.runtime.shutdown import stop_if_told

TASKS_PER_CPU = 2
LAST_SECONDS = 15.0
LOOKED_AT_SECONDS = 10.0  # a cluster that has grown gets more tasks, whether one has ended or not


def in_order(function: Callable, calls: Sequence[tuple]) -> list:
    """The result of a task for each call, in the order of calls."""
    results = dict(as_they_come(function, calls))
    return [results[number] for number in range(len(calls))]


def as_they_come(function: Callable, calls: Sequence[tuple]) -> Iterator[tuple[int, Any]]:
    """The number and the result of each call, the first to end first."""
    remote: Any = ray.remote(function)
    wait_for_room({"CPU": 1.0})
    waiting = list(enumerate(calls))[::-1]
    running: dict[Any, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < _most_at_once():
                number, arguments = waiting.pop()
                running[remote.remote(*arguments)] = number
            stop_if_told()
            left = len(waiting) + len(running)
            counts = {"units_total": len(calls), "units_done": len(calls) - left}
            observe(function.__name__, **counts, queue_depth=len(waiting))
            done, _ = ray.wait(list(running), num_returns=1, timeout=LOOKED_AT_SECONDS)
            for task in done:
                with own_error():
                    yield running.pop(task), ray.get(task)
        observe(function.__name__, units_total=len(calls), units_done=len(calls), queue_depth=0)
    finally:
        # After an error nothing may go on writing behind the back of the next attempt. A scheduler
        # that wants its machine back kills after 30 s, so what takes longer is abandoned.
        if running:
            _, late = ray.wait(list(running), num_returns=len(running), timeout=LAST_SECONDS)
            for task in late:
                ray.cancel(task, force=True)


def _most_at_once() -> int:
    return max(2, TASKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1)))


@contextlib.contextmanager
def own_error() -> Iterator[None]:
    """An error of our own code in a worker, raised here without Ray's wrapping."""
    try:
        yield
    except OutOfMemoryError as error:
        reason = str(error).strip().splitlines()[0]
        raise PartialWork(
            f"workers were killed again and again for lack of memory ({reason}); use nodes with "
            "more of it, or fewer CPUs on each, and repeat the command"
        ) from None
    except RayTaskError as error:
        if isinstance(error.cause, RayError):
            raise
        raise error.cause from None
