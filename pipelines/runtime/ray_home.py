"""The folder an embedded Ray writes to: fresh, short enough for its sockets, removed at the end."""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# A unix socket's path holds at most 107 bytes, and Ray appends up to 64 to its folder.
MAX_RAY_HOME_BYTES = 42


@contextlib.contextmanager
def make_ray_home(folder: Path) -> Iterator[Path]:
    """An empty folder under a name short enough for Ray's sockets, removed at the end.

    The driver locks it for its life, so that the next session can tell and remove what a killed
    one left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    homes = folder.resolve() / "_ray"
    with contextlib.ExitStack() as stack:
        with _locked(folder):
            homes.mkdir(exist_ok=True)
            _remove_dead(homes)
            home = Path(tempfile.mkdtemp(dir=homes))
            handle = stack.enter_context(_locked(home))
        try:
            yield _short_name(home, handle)
        finally:
            shutil.rmtree(home, ignore_errors=True)
            with _locked(folder), contextlib.suppress(OSError):
                homes.rmdir()


def _remove_dead(homes: Path) -> None:
    """Remove the homes whose driver is gone, and with it its lock."""
    for home in homes.iterdir():
        with contextlib.suppress(BlockingIOError), _locked(home, wait=False):
            shutil.rmtree(home, ignore_errors=True)


def _short_name(home: Path, handle: int) -> Path:
    """A path to `home` that leaves room for the names of Ray's sockets."""
    if len(os.fsencode(home)) <= MAX_RAY_HOME_BYTES:
        return home
    if Path("/proc/self/fd").exists():
        # The same folder through this process's open handle, as Linux shows it.
        return Path(f"/proc/{os.getpid()}/fd/{handle}")
    raise ValueError(
        f"{home} is too long for Ray's sockets ({MAX_RAY_HOME_BYTES} bytes at most); "
        "work in a folder with a shorter path"
    )


@contextlib.contextmanager
def _locked(folder: Path, wait: bool = True) -> Iterator[int]:
    """An open handle on a folder that nobody else has locked."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield handle
    finally:
        os.close(handle)


@cache
def _token() -> str:
    """One per process: Ray reads a token once and keeps it for later sessions."""
    return secrets.token_hex(32)


def write_token(home: Path) -> Path:
    """A token that only its user can read; the path of its file."""
    path = home / "token"
    path.touch(mode=0o600)
    path.write_text(_token())
    return path
