"""Run a stage by name; its end becomes an exit code and, where it failed, one line.

Jobs and their libraries load when one runs, so that help is instant.
"""

import contextlib
import gc
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import NoReturn, TypeVar

from pipelines.options import Spec
from pipelines.runtime import shutdown
from pipelines.runtime.exit_codes import EXIT_BAD_INPUT, EXIT_PARTIAL, EXIT_UNEXPECTED
from pipelines.runtime.logs import configure_logs, log_stage
from pipelines.runtime.terminal import printable

log = logging.getLogger(__name__)

Result = TypeVar("Result")

TORCH_CACHE = "TORCHINDUCTOR_CACHE_DIR"
STOPPED = "stopped; the same command goes on from what is saved"


def run_job(
    stage: str, spec_type: type[Spec], options: Mapping[str, object], debug: bool, json_log: bool
) -> object:
    """Check the options of a stage and run it; a failure becomes one line and an exit code."""

    def call() -> object:
        spec = spec_type(**options)
        with _garbage_uncollected():
            job = import_module(f"pipelines.{stage}.job")
        return job.run(spec)

    with log_stage("" if stage == "run" else stage):
        return run_guarded(call, debug=debug, json_log=json_log)


def run_guarded(call: Callable[[], Result], *, debug: bool, json_log: bool) -> Result:
    """The result of a call; a failure becomes one line on stderr and an exit code."""
    configure_logs(json_log, debug)
    shutdown.reset()
    shutdown.catch_signals(_hard_exit)
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
        if (code := getattr(error, "exit_code", None)) is not None:
            _fail(f"error: {error}", code, debug)
        _fail(f"unexpected {name}: {reason[-1] if reason else name}", EXIT_UNEXPECTED, debug)


@contextlib.contextmanager
def _garbage_uncollected() -> Iterator[None]:
    """Imports leave no garbage; to look for it took 1.5 s of the 5 s that torch and Ray load."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


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


def _hard_exit() -> None:
    seconds = shutdown.HARD_EXIT_SECONDS
    shutdown.exit_now(f"{STOPPED} (its end took over {seconds:g} s)\n", EXIT_PARTIAL)


def _fail(message: str, code: int, debug: bool) -> NoReturn:
    if debug:
        sys.stderr.write(printable(traceback.format_exc()))
    line = printable(" ".join(message.split()))  # libraries explain themselves in several
    hint = "" if debug else "  (--debug shows where)"
    sys.stderr.write(f"{line}{hint}\n")
    sys.exit(code)
