"""Facts of one machine, read on it: the same call on the driver and as a task on every node.

In:  the folder of Ray's session there; for storage, a place and the names of marker files.
Out: NodeFacts; marker files written, found and removed.
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
class ByteUsage:
    """Bytes of a disk or of memory; zero where they cannot be read."""

    total: int
    free: int

    @property
    def used_share(self) -> float:
        """Share that is in use; 0 where the total is unknown."""
        return 1 - self.free / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """Seconds a node's clock is ahead of the driver's, give or take `error`."""

    ahead: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a machine has.

    versions: by package, None for a missing one. gpus: as the GPU driver lists them. has_token: Ray
    there requires a token. token_mode: permissions of the file with the token, None without one.
    """

    host: str
    python: str
    versions: dict[str, str | None]
    gpus: tuple[str, ...]
    disk: ByteUsage
    shared_memory: ByteUsage
    memory: ByteUsage
    has_token: bool
    token_file: str | None = None
    token_mode: int | None = None


def read_node_facts(folder: str) -> NodeFacts:
    """Facts of this machine. folder: on the disk whose free space counts."""
    token_file = _token_file()
    return NodeFacts(
        host=socket.gethostname(),
        python=platform.python_version(),
        versions={package: _version(package) for package in PACKAGES},
        gpus=_gpus(),
        disk=_disk(Path(folder)),
        shared_memory=_disk(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else ByteUsage(0, 0),
        memory=_memory(),
        has_token=is_token_auth_enabled(),
        token_file=None if token_file is None else str(token_file),
        token_mode=None if token_file is None else token_file.stat().st_mode & 0o777,
    )


def read_clock() -> float:
    """Seconds since 1970, as this machine has it."""
    return time.time()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpus() -> tuple[str, ...]:
    """GPUs by nvidia-smi: torch in a Ray task that holds no GPU sees none."""
    try:
        done = subprocess.run(
            GPU_QUERY, capture_output=True, text=True, timeout=GPU_QUERY_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())


def _disk(folder: Path) -> ByteUsage:
    existing = next((f for f in (folder, *folder.parents) if f.is_dir()), Path("/"))
    usage = shutil.disk_usage(existing)
    return ByteUsage(usage.total, usage.free)


def _memory() -> ByteUsage:
    """Memory of the machine, or of the container if its limit is lower."""
    if not MEMORY.exists():
        return ByteUsage(0, 0)
    lines = MEMORY.read_text(encoding="ascii").splitlines()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    total, free = 1024 * kilobytes["MemTotal"], 1024 * kilobytes["MemAvailable"]
    with contextlib.suppress(OSError, ValueError):  # no such limit
        limit = int((CGROUP / "memory.max").read_text(encoding="ascii"))
        used = int((CGROUP / "memory.current").read_text(encoding="ascii"))
        cached = _cgroup_number("inactive_file")
        total, free = min(total, limit), min(free, max(0, limit - used + cached))
    return ByteUsage(total, free)


def _cgroup_number(name: str) -> int:
    lines = (CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[0] == name)


def _token_file() -> Path | None:
    """The file Ray reads its token from, None if the environment holds the token itself."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return None
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    return path if path.is_file() else None


# -- storage ---------------------------------------------------------------------------------------


def write_mark(place: str, folder: str, name: str) -> None:
    """Write a marker file below `place`, holding a lock as a job would.

    folder: of this check. name: of the machine. FileNotFoundError if there is no such place here.
    """
    if "://" not in place and not Path(place).is_dir():
        raise FileNotFoundError(f"{place} is no folder there")
    storage = storage_at(f"{place.rstrip('/')}/{folder}/{name}")
    with storage.lock():
        storage.put(MARK, name.encode())


def find_marks(place: str, folder: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names whose marker files can be read here, after waiting up to 10 s for all of them."""
    storage = storage_at(f"{place.rstrip('/')}/{folder}")
    deadline = time.monotonic() + SEEN_SECONDS
    while True:
        seen = tuple(name for name in names if storage.stat(f"{name}/{MARK}") is not None)
        if len(seen) == len(names) or time.monotonic() > deadline:
            return tuple(n for n in seen if storage.read(f"{n}/{MARK}") == n.encode())
        time.sleep(0.5)


def remove_marks(place: str, folder: str) -> None:
    """Remove the marker files of a check."""
    with contextlib.suppress(FileNotFoundError):  # another node on the same disk is faster
        storage_at(place).delete([folder])
