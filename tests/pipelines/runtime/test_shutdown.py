"""Jobs that are told to stop do; so do those that stand still, but not those that are slow."""

import itertools
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

from pipelines.runtime.watchdog import terminate_if_stalled

pytestmark = pytest.mark.timeout(60)

JOB = """
import os, signal, threading
from contextlib import suppress
from pipelines.cli.run_job import run_guarded
from pipelines.runtime.watchdog import terminate_if_stalled
from pipelines.runtime import shutdown
from pipelines.runtime.shutdown import raise_if_requested

def interrupted():
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()

def run():
{body}

run_guarded(run, debug=False, json_log=False)
"""
# The main thread waits for something that never comes, as it does inside a stuck Ray.
STILL = """
    with terminate_if_stalled(lambda: 0, seconds=0.5):
        threading.Event().wait()
"""
# Ctrl-C comes while a library runs that swallows it.
SWALLOWED = """
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait()
    while True:
        raise_if_requested()
"""
# A second command in the process of the first, which was stopped; it outlives the hard exit.
SECOND = """
    shutdown.HARD_EXIT_SECONDS = 0.5
    with suppress(SystemExit):
        run_guarded(interrupted, debug=False, json_log=False)
    run_guarded(lambda: threading.Event().wait(1.5), debug=False, json_log=False)
"""


# What a shell does for a command with & at its end.
BACKGROUND = ["sh", "-c", 'trap "" INT; exec "$0" "$@"']
# Ctrl-C comes in the background of a shell, where it means somebody else.
IGNORED = """
    os.kill(os.getpid(), signal.SIGINT)
"""


def ended(body: str, code: int = 3, start: Sequence[str] = ()) -> list[str]:
    """What a job says that ends with a code."""
    words = [*start, sys.executable, "-c", JOB.format(body=body)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=50)
    assert done.returncode == code, done.stderr
    return done.stderr.splitlines()


def test_standing_still_ends_with_saved_work():
    reason, last = ended(STILL)
    assert "nothing was done for" in reason and "lack of memory" in reason
    assert "the same command goes on" in last


def test_a_swallowed_interrupt_is_not_forgotten():
    [last] = ended(SWALLOWED)
    assert "the same command goes on" in last


@pytest.mark.slow
def test_command_after_an_interrupted_one_is_not_ended_in_its_place():
    [stopped] = ended(SECOND, code=0)
    assert "the same command goes on" in stopped


def test_interrupt_in_the_background_is_ignored_and_the_log_says_so():
    [line] = ended(IGNORED, code=0, start=BACKGROUND)
    assert "INFO SIGINT is ignored" in line


@pytest.mark.slow
def test_slow_progress_goes_on(monkeypatch):
    """The signal would come within 0.3 s if a look that differs did not count."""
    is_ended = threading.Event()
    monkeypatch.setattr("os.kill", lambda pid, number: is_ended.set())
    counted = itertools.count()
    with terminate_if_stalled(lambda: next(counted) // 30, seconds=0.3):
        assert not is_ended.wait(1.5)
    with terminate_if_stalled(lambda: 0, seconds=0.3):
        assert is_ended.wait(5)
