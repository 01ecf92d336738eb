"""A job that stands still ends by itself.

What holds it, such as a Ray whose own helpers are killed for lack of memory, holds the main thread
as well. So the end comes as a scheduler would bring it, by SIGTERM, and what is done is saved.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sbert_core.threads import beside

log = logging.getLogger(__name__)

# Far more than a model takes to load, or a lost node to be replaced.
STILL_SECONDS = 3600.0
LOOKS = 60


@contextmanager
def ended_if_still(
    progress: Callable[[], object], seconds: float = STILL_SECONDS
) -> Iterator[None]:
    """End this process if the progress of what is done meanwhile stays the same for so long."""

    def watch(stop: threading.Event) -> None:
        seen, since = progress(), time.monotonic()
        while not stop.wait(seconds / LOOKS):
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

    with beside(watch, "stillness"):
        yield
