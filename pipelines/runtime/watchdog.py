"""Terminate a job that makes no progress.

What blocks it, such as a Ray whose own helpers are killed for lack of memory, blocks the main
thread as well. So the process sends itself SIGTERM, as a scheduler would, and finished work is
saved.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sbert_core.threads import background

log = logging.getLogger(__name__)

# Far more than a model takes to load, or a lost node to be replaced.
STALL_SECONDS = 3600.0
CHECKS = 60  # in that time


@contextmanager
def terminate_if_stalled(
    progress: Callable[[], object], seconds: float = STALL_SECONDS
) -> Iterator[None]:
    """Send SIGTERM to this process if `progress()` stays the same for `seconds` in the block."""

    def watch(stop: threading.Event) -> None:
        seen, since = progress(), time.monotonic()
        while not stop.wait(seconds / CHECKS):
            if (now := progress()) != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since >= seconds:
                log.error(
                    "nothing was done for %.0f s: look for a lack of memory, or a cluster that "
                    "lost its nodes",
                    seconds,
                )
                os.kill(os.getpid(), signal.SIGTERM)
                return

    with background(watch, "watchdog"):
        yield
