"""How long a job waits for what others hold: capacity of the cluster, an output.

Waiting does not change a job's result, so it is not part of a spec: the command sets it once.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from sbert_core.storage import BusyError, Storage

log = logging.getLogger(__name__)

BUSY_POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class WaitPolicy:
    """seconds: the longest wait. waits_for_lock: also for another run that holds the output."""

    seconds: float = 600.0
    waits_for_lock: bool = False


_policy: ContextVar[WaitPolicy] = ContextVar("wait policy", default=WaitPolicy())  # noqa: B039


@contextlib.contextmanager
def wait_policy(seconds: float, *, waits_for_lock: bool = False) -> Iterator[None]:
    """Set the policy for the block."""
    token = _policy.set(WaitPolicy(seconds, waits_for_lock))
    try:
        yield
    finally:
        _policy.reset(token)


def current_wait_policy() -> WaitPolicy:
    """The policy of the innermost block, or the default one."""
    return _policy.get()


@contextlib.contextmanager
def lock_when_free(storage: Storage) -> Iterator[None]:
    """Hold the lock of a storage, waiting for another run's end if the policy allows it.

    BusyError if another run holds it, at once or after the longest wait.
    """
    policy = current_wait_policy()
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(storage.lock())
                break
            except BusyError as error:
                waited = time.monotonic() - start
                if not policy.waits_for_lock or waited > policy.seconds:
                    raise
                if waited < BUSY_POLL_SECONDS:
                    log.info("%s", error)
                time.sleep(BUSY_POLL_SECONDS)
        yield
