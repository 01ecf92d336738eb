"""A stage by name, run to one of the exit codes.

Jobs and their libraries load when one runs, so that help is instant.
"""

import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from pipelines.runtime import shutdown
from pipelines.runtime.logs import configure_logs, stage_named
from pipelines.runtime.terminal import printable

log = logging.getLogger(__name__)

EXIT_UNEXPECTED = 1
EXIT_BAD_INPUT = 2
EXIT_PARTIAL = 3
EXIT_GATE = 4
EXIT_BUSY = 5
# From the signal on; schedulers kill after 30. A Ray that was told to go as well may answer nobody.
MOST_LAST_SECONDS = 23.0
TORCH_CACHE = "TORCHINDUCTOR_CACHE_DIR"
STOPPED = "stopped; the same command goes on from what is saved"
# Errors that have an exit code of their own, by name: their modules load with the job.
EXIT_BY_NAME = {"PartialWork": EXIT_PARTIAL, "GateFailed": EXIT_GATE, "BusyError": EXIT_BUSY}


def run_job(stage: str, spec_name: str, debug: bool, json_log: bool, **options: object) -> Any:  # noqa: ANN401
    """Run a stage by name; a failure becomes one line and an exit code."""

    def call() -> Any:  # noqa: ANN401
        spec = getattr(import_module(f"pipelines.{stage}.spec"), spec_name)(**options)
        return import_module(f"pipelines.{stage}.job").run(spec)

    with stage_named("" if stage == "run" else stage):
        return _ended_well(call, debug, json_log)


def run_call(stage: str, debug: bool, json_log: bool, *arguments: object) -> Any:  # noqa: ANN401
    """The same for a stage that takes plain arguments."""
    return _ended_well(
        lambda: import_module(f"pipelines.{stage}.job").run(*arguments), debug, json_log
    )


def _ended_well(call: Callable[[], Any], debug: bool, json_log: bool) -> Any:  # noqa: ANN401
    configure_logs(json_log, debug)
    shutdown.forget()
    _catch_signals()
    try:
        with _torch_cache_removed():
            return call()
    except (ValueError, FileNotFoundError, PermissionError) as error:
        _fail(f"error: {error}", EXIT_BAD_INPUT, debug)
    except OSError as error:  # a full disk, a store that is down: later it may work
        words = error.strerror or str(error)
        _fail(f"error: {words}; the same command goes on from what is saved", EXIT_PARTIAL, debug)
    except KeyboardInterrupt:
        _fail(STOPPED, EXIT_PARTIAL, debug)
    except Exception as error:  # noqa: BLE001 - the last line of defence; nothing is swallowed
        reason = str(error).strip().splitlines()
        name = type(error).__name__
        for kind in type(error).__mro__:
            if (code := EXIT_BY_NAME.get(kind.__name__)) is not None:
                _fail(f"error: {error}", code, debug)
        _fail(f"unexpected {name}: {reason[-1] if reason else name}", EXIT_UNEXPECTED, debug)


def _catch_signals() -> None:
    """Preempted jobs save what they have; what whoever started us had ignored stays ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            log.info(
                "%s is ignored, as shells have it for commands in the background; another signal "
                "ends the job",
                signal.Signals(number).name,
            )
        else:
            signal.signal(number, _interrupted)


@contextlib.contextmanager
def _torch_cache_removed() -> Iterator[None]:
    """torch makes a folder in /tmp for compiled code as it is imported; nothing here compiles."""
    if TORCH_CACHE in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="sbert-", ignore_cleanup_errors=True) as folder:
        os.environ[TORCH_CACHE] = folder
        try:
            yield
        finally:
            del os.environ[TORCH_CACHE]


def _interrupted(number: int, frame: object) -> None:
    shutdown.tell()
    last = threading.Timer(MOST_LAST_SECONDS, _leave)
    last.daemon = True
    last.start()
    raise KeyboardInterrupt


def _leave() -> None:
    """Nothing is lost: files are published whole or not at all."""
    os.write(2, f"{STOPPED} (its end took over {MOST_LAST_SECONDS:g} s)\n".encode())
    os._exit(EXIT_PARTIAL)


def _fail(message: str, code: int, debug: bool) -> None:
    if debug:
        sys.stderr.write(printable(traceback.format_exc()))
    line = printable(" ".join(message.split()))  # libraries explain themselves in several
    hint = "" if debug else "  (--debug shows where)"
    sys.stderr.write(f"{line}{hint}\n")
    sys.exit(code)
