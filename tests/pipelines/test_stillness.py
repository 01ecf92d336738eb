"""A job that stands still is ended; one that goes on is not, however slowly."""

import itertools
import subprocess
import sys
import threading
import time

import pytest

from pipelines.stillness import ended_if_still

pytestmark = pytest.mark.timeout(60)

# The main thread waits for something that never comes, as it does inside a stuck Ray.
STILL = """
import threading
from pipelines.running import run_call
import pipelines.stillness, pipelines.demo

def run():
    with pipelines.stillness.ended_if_still(lambda: 0, seconds=0.5):
        threading.Event().wait()

pipelines.demo.run = run
run_call("demo", False, False)
"""


def test_standing_still_ends_with_saved_work():
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", STILL], capture_output=True, text=True, timeout=50
    )
    assert ended.returncode == 3, ended.stderr
    assert time.monotonic() - began < 30
    reason, last = ended.stderr.splitlines()
    assert "nothing was done for" in reason and "lack of memory" in reason
    assert "the same command goes on" in last


def test_slow_progress_goes_on(monkeypatch):
    """The signal would come within 0.3 s if a look that differs did not count."""
    ended = threading.Event()
    monkeypatch.setattr("os.kill", lambda pid, number: ended.set())
    counted = itertools.count()
    with ended_if_still(lambda: next(counted) // 30, seconds=0.3):
        assert not ended.wait(1.5)
    with ended_if_still(lambda: 0, seconds=0.3):
        assert ended.wait(5)
