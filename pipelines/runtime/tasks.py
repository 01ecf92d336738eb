"""Plain Ray tasks for every job: a bounded number at a time, errors as what they are.

Tasks write files that are whole or not there, so one that was abandoned leaves nothing wrong.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from pipelines.artifacts.errors import PartialWork
from pipelines.runtime.capacity import wait_for_capacity
from pipelines.runtime.metrics import observe
from pipelines.runtime.shutdown import raise_if_requested

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")  # not compared with the calls: those may hold references

TASKS_PER_CPU = 2
GRACE_SECONDS = 15.0
POLL_SECONDS = 10.0  # a cluster that has grown gets more tasks, whether one has ended or not


def in_order(
    function: Callable[Parameters, Result],
    calls: Sequence[tuple[object, ...]],
    shared: tuple[object, ...] = (),
) -> list[Result]:
    """Run a task for each call, given as arguments; the results in the order of the calls.

    shared: the first arguments of all of them, sent to each node once.
    """
    results = dict(as_they_come(function, calls, shared))
    return [results[number] for number in range(len(calls))]


def as_they_come(
    function: Callable[Parameters, Result],
    calls: Sequence[tuple[object, ...]],
    shared: tuple[object, ...] = (),
) -> Iterator[tuple[int, Result]]:
    """The same, as number and result of each call, the first to end first."""
    if not calls:
        return
    remote = ray.remote(function)
    wait_for_capacity({"CPU": 1.0})
    first = [ray.put(one) for one in shared]
    waiting = list(enumerate(calls))[::-1]
    running: dict[ray.ObjectRef, int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < _max_running():
                number, arguments = waiting.pop()
                running[remote.remote(*first, *arguments)] = number
            raise_if_requested()
            left = len(waiting) + len(running)
            counts = {"units_total": len(calls), "units_done": len(calls) - left}
            observe(function.__name__, **counts, queue_depth=len(waiting))
            done, _ = ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)
            for task in done:
                with unwrap_errors():
                    yield running.pop(task), ray.get(task)
        observe(function.__name__, units_total=len(calls), units_done=len(calls), queue_depth=0)
    finally:
        # After an error no task may go on writing beside the next attempt. Schedulers kill 30 s
        # after SIGTERM, so tasks that take longer are cancelled.
        if running:
            _, late = ray.wait(list(running), num_returns=len(running), timeout=GRACE_SECONDS)
            for task in late:
                ray.cancel(task, force=True)


def _max_running() -> int:
    return max(2, TASKS_PER_CPU * int(ray.cluster_resources().get("CPU", 1)))


@contextlib.contextmanager
def unwrap_errors() -> Iterator[None]:
    """Raise errors of our own code in a worker without Ray's wrapping."""
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
