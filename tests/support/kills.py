"""kill -9 of drivers, actors and write tasks at random moments, and what must be true after."""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.warm_commands import WarmProcess

SBERT = Path(sys.executable).parent / "sbert"
DEADLINE_SECONDS = 240
# How the processes of a job call themselves.
VICTIMS = {
    "actor": ("MapWorker(MapBatches(UnitEmbedder))",),
    "write task": ("ray::fill_units",),
    "index task": ("ray::build_shard",),
}


class Job:
    """One command, started again until it ends by itself."""

    def __init__(self, words: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        self.words = [str(SBERT), *words]
        self.log = log
        self.env = {**os.environ, **(env or {})}
        self.process: WarmProcess | None = None

    def start(self) -> None:
        self.log.touch()
        self.process = WarmProcess(self.words, self.log, self.env)

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        assert self.process is not None
        return self.process.wait(timeout=seconds)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def until(self, look: Callable[[], Any], seconds: float = 150.0) -> Any:
        """What is found as soon as something is, while the job runs."""
        began = time.monotonic()
        while True:
            looked = time.monotonic()
            if found := look():
                return found
            assert self.is_running and looked < began + seconds, self.log.read_text()
            # To look takes time from the job, a third of a core at most.
            time.sleep(max(0.02, 2 * (time.monotonic() - looked)))

    def kill(self, *, wait: bool = True) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        if wait:
            self.process.wait(timeout=30)

    def victims(self, kind: str) -> list[int]:
        """Processes of the given kind below the driver."""
        assert self.process is not None
        below = descendants([self.process.pid])
        return [pid for pid, title in below.items() if any(word in title for word in VICTIMS[kind])]


def descendants(ancestors: list[int]) -> dict[int, str]:
    """Titles of all processes below some, by id."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    titles: dict[int, str] = {}
    pending = list(ancestors)
    while pending:
        below = children.get(pending.pop(), [])
        pending += below
        for pid in below:
            with suppress(OSError):
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
                titles[pid] = title.replace(b"\0", b" ").decode()
    return titles


def started_at(pid: int) -> str | None:
    """When a process began, which tells it from a later one of the same number; None if over."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else fields[18]


def processes_until_end(
    job: Job, stop: signal.Signals | None = None, at: str = ""
) -> dict[int, str]:
    """Run a job, and send it a signal, if any, as soon as one of its processes has a title.

    All the processes it ever had, by number, with their starts.
    """
    seen: dict[int, str] = {}
    job.start()
    assert job.process is not None
    while job.is_running:
        below = descendants([job.process.pid])
        seen |= {pid: start for pid in below if (start := started_at(pid)) is not None}
        if stop is not None and any(at in title for title in below.values()):
            job.process.send_signal(stop)
            stop = None
        time.sleep(0.1)
    assert stop is None, f"no process was called {at}: {job.log.read_text()}"
    return seen


def kill_one(job: Job, kind: str, rng: random.Random, seconds: float) -> bool:
    """Kill the driver, or a worker of a kind, at a random moment; False if there was none."""
    deadline = time.monotonic() + seconds
    if kind == "driver":
        time.sleep(rng.uniform(1, seconds))
        if job.is_running:
            job.kill()
            return True
        return False
    while job.is_running and time.monotonic() < deadline:
        if pids := job.victims(kind):
            time.sleep(rng.uniform(0, 2.0))
            pids = job.victims(kind) or pids
            try:
                os.kill(rng.choice(pids), signal.SIGKILL)
                return True
            except ProcessLookupError:
                continue
        time.sleep(0.1)
    return False
