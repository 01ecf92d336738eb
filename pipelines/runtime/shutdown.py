"""Stopping on SIGINT and SIGTERM: save what is done, and end in time.

A signal raises KeyboardInterrupt, and a library may lose it: in a destructor, in a callback. So
loops over long work call `raise_if_requested` as well, and a timer ends the process if nothing else
does.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

# Hard exit this long after the signal: schedulers SIGKILL at 30 s, and ray.shutdown() may hang.
HARD_EXIT_SECONDS = 23.0
_requested = threading.Event()
_hard_exits: list[threading.Timer] = []  # of signals that came


def request() -> None:
    """Ask the running work to stop."""
    _requested.set()


def reset() -> None:
    """Forget an earlier request, and the hard exit that would follow it."""
    _requested.clear()
    while _hard_exits:
        _hard_exits.pop().cancel()


def raise_if_requested() -> None:
    """KeyboardInterrupt if the process was asked to stop."""
    if _requested.is_set():
        raise KeyboardInterrupt


def catch_signals(hard_exit: Callable[[], None]) -> None:
    """Turn SIGINT and SIGTERM into KeyboardInterrupt.

    hard_exit: called if the process is still there `HARD_EXIT_SECONDS` later. A signal that was
    ignored when the process started stays ignored, and the log states it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            log.info(
                "%s is ignored, as shells have it for commands in the background; another signal "
                "ends the job",
                signal.Signals(number).name,
            )
        else:
            signal.signal(number, lambda _number, _frame: _interrupt(hard_exit))


def _interrupt(hard_exit: Callable[[], None]) -> None:
    request()
    last = threading.Timer(HARD_EXIT_SECONDS, hard_exit)
    last.daemon = True
    _hard_exits.append(last)
    last.start()
    raise KeyboardInterrupt


def exit_now(message: str, code: int) -> None:
    """End the process without clean-up; files are published whole or not at all."""
    os.write(2, message.encode())
    os._exit(code)
