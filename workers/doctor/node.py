"""What a machine has, told from inside: the same call on the driver and as a task on every node.

In:  the folder of Ray's session there; for storage, a place and the names of marks.
Out: NodeFacts; marks written, seen and removed.
"""

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ray._private.authentication.authentication_utils import is_token_auth_enabled

from sbert_core.storage import storage_at

PACKAGES = ("sbert-mill", "ray", "torch", "transformers")
SHARED_MEMORY = Path("/dev/shm")
MEMORY = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
GPU_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
GPU_QUERY_SECONDS = 20.0
# A network file system may show a new file to other machines with a delay.
SEEN_SECONDS = 10.0
MARK = "mark"


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of a disk or of memory."""

    total: int
    free: int

    @property
    def used_share(self) -> float:
        return 1 - self.free / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a node's clock is ahead of ours, in seconds, give or take `error`."""

    ahead: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """versions: None for a package that is missing. gpus: as the GPU driver lists them.

    token_mode: of the file that holds the token, None if there is none.
    """

    host: str
    python: str
    versions: dict[str, str | None]
    gpus: tuple[str, ...]
    disk: Room
    shared_memory: Room
    memory: Room
    has_token: bool
    token_file: str | None = None
    token_mode: int | None = None


def node_facts(folder: str) -> NodeFacts:
    token_file = _token_file()
    return NodeFacts(
        host=socket.gethostname(),
        python=platform.python_version(),
        versions={package: _version(package) for package in PACKAGES},
        gpus=_gpus(),
        disk=_disk(Path(folder)),
        shared_memory=_disk(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else Room(0, 0),
        memory=_memory(),
        has_token=is_token_auth_enabled(),
        token_file=None if token_file is None else str(token_file),
        token_mode=None if token_file is None else token_file.stat().st_mode & 0o777,
    )


def clock() -> float:
    """Seconds since 1970, as this machine has it."""
    return time.time()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpus() -> tuple[str, ...]:
    """Asked of the driver's own command: torch in a task without GPUs sees none."""
    try:
        done = subprocess.run(
            GPU_QUERY, capture_output=True, text=True, timeout=GPU_QUERY_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())


def _disk(folder: Path) -> Room:
    there = next((f for f in (folder, *folder.parents) if f.is_dir()), Path("/"))
    usage = shutil.disk_usage(there)
    return Room(usage.total, usage.free)


def _memory() -> Room:
    """Of the machine, or of the container if it is allowed less; nothing where none tells."""
    if not MEMORY.exists():
        return Room(0, 0)
    lines = MEMORY.read_text(encoding="ascii").splitlines()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    total, free = 1024 * kilobytes["MemTotal"], 1024 * kilobytes["MemAvailable"]
    with contextlib.suppress(OSError, ValueError):  # no such limit
        limit = int((CGROUP / "memory.max").read_text(encoding="ascii"))
        used = int((CGROUP / "memory.current").read_text(encoding="ascii"))
        cached = _cgroup_number("inactive_file")
        total, free = min(total, limit), min(free, max(0, limit - used + cached))
    return Room(total, free)


def _cgroup_number(name: str) -> int:
    lines = (CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[0] == name)


def _token_file() -> Path | None:
    """Where Ray looks for a token, unless the environment holds the token itself."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return None
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return path if path.is_file() else None


# -- storage ---------------------------------------------------------------------------------------


def left_mark(place: str, folder: str, name: str) -> None:
    """Take the lock of a place below `place` as a job would, and write a file."""
    if "://" not in place and not Path(place).is_dir():
        raise FileNotFoundError(f"{place} is no folder there")
    storage = storage_at(f"{place.rstrip('/')}/{folder}/{name}")
    with storage.lock():
        storage.put(MARK, name.encode())


def seen_marks(place: str, folder: str, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the names whose marks are to be read here."""
    storage = storage_at(f"{place.rstrip('/')}/{folder}")
    deadline = time.monotonic() + SEEN_SECONDS
    while True:
        seen = tuple(name for name in names if storage.stat(f"{name}/{MARK}") is not None)
        if len(seen) == len(names) or time.monotonic() > deadline:
            return tuple(n for n in seen if storage.read(f"{n}/{MARK}") == n.encode())
        time.sleep(0.5)


def removed_marks(place: str, folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # another node on the same disk is faster
        storage_at(place).delete([folder])
