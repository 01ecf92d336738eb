"""The only place that starts or joins Ray.

In:  an address, or none for an embedded Ray; a folder for what Ray writes.
Out: a connected driver for the length of a `with` block, and nothing left behind.
"""

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import ray
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.exceptions import AuthenticationError

from pipelines.runtime import reaper
from pipelines.runtime.ray_home import make_ray_home, write_token
from sbert_core.errors import TransientError

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # else Ray's own C++ log lines reach the terminal
    # Tracebacks of Ray Data's own helpers, whose results nobody asks for; we ask for all of ours.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # A task whose worker is killed for lack of memory is tried again without end by default.
    "RAY_task_oom_retries": "3",
    # Ray Train sees what its workers report only when it looks, every 2 s by itself.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
}
# Every process of Ray's wakes up a hundred times a second; on two cores the idle ones cost 1 %.
FRUGAL = {
    "RAY_num_workers_soft_limit": "0",  # else as many idle workers as CPUs are kept for good
    # Between two steps of a job they stay: to start one takes 0.8 s.
    "RAY_idle_worker_killing_time_threshold_ms": "15000",
    "RAY_metrics_report_interval_ms": "600000",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_enable_metrics_collection": "0",
    "REPORTER_UPDATE_INTERVAL_MS": "60000",
    "AUTOSCALER_UPDATE_INTERVAL_S": "60",
    # Ray Train asks the dashboard about itself and waits 13 s at its end for one that is not there;
    # an address where nobody listens is an answer at once.
    "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:1",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # one process less; nobody preempts this machine
}
OBJECT_STORE_BYTES = 512 * 2**20
CONNECT_SECONDS = 10.0
_held: list[str | None] = []  # the address of the session this process is in
_shared: list[tuple[contextlib.ExitStack, Path]] = []  # what keeps it beyond the job that began it


def is_connected() -> bool:
    """Is this process inside a session?"""
    return bool(_held)


def is_embedded() -> bool:
    """Does the session run on a Ray of its own, which no node can join?"""
    return _held == [None]


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def job_session(place: str, address: str | None) -> Iterator[None]:
    """Ray for a job that writes to `place`: what Ray itself writes goes there too, if it can."""
    with contextlib.ExitStack() as stack:
        folder = _local_folder(place, stack)
        # One logical CPU more than there are: actors on all cores would leave none for tasks.
        num_cpus = None if address else num_cores() + 1
        stack.enter_context(ray_session(folder, address=address, num_cpus=num_cpus))
        yield


def _local_folder(place: str, stack: contextlib.ExitStack) -> Path:
    if "://" in place:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sbert-")))
    return Path(place)


@contextlib.contextmanager
def shared_session(place: str) -> Iterator[None]:
    """Jobs inside share one Ray, which the first that needs it starts and the block's end stops."""
    with contextlib.ExitStack() as stack:
        _shared.append((stack, _local_folder(place, stack)))
        try:
            yield
        finally:
            _shared.pop()


@contextlib.contextmanager
def ray_session(
    folder: Path, *, address: str | None = None, num_cpus: int | None = None
) -> Iterator[None]:
    """Join the Ray at `address`, or start one that writes only to a fresh folder in `folder`.

    The embedded Ray gets a token of its own, readable by its user alone. A session inside another
    of the same address is that one: the stages of a run share their workers.
    """
    if address in _held:
        yield
    elif _shared:
        stack, place = _shared[-1]
        stack.enter_context(_new_session(place, address, num_cpus))
        yield
    else:
        with _new_session(folder, address, num_cpus):
            yield


@contextlib.contextmanager
def _new_session(folder: Path, address: str | None, num_cpus: int | None) -> Iterator[None]:
    with make_ray_home(folder) as home:
        own = FRUGAL | {
            "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token"),
            "RAY_AUTH_TOKEN_PATH": str(write_token(home)),
            "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),  # else a folder in /tmp stays
        }
        token = _use_given_token() if address else own
        # Workers import from the driver's working directory first. From an empty one, a user's
        # own folders named `workers` or `pipelines` cannot stand in for ours.
        reaped = contextlib.nullcontext() if address else _reap_on_exit(home)
        with reaped, _ray_environment(QUIET | token):
            try:
                with _change_directory(home), _keep_signal_handler(), _hide_start_messages():
                    _connect(home, address, num_cpus)
                _held.append(address)
                yield
            finally:
                _held.clear()
                ray.shutdown()


@contextlib.contextmanager
def _reap_on_exit(home: Path) -> Iterator[None]:
    """Start a reaper that kills the Ray of this folder when the block or this process ends."""
    if not Path("/proc/self/fd").exists():
        yield
        return
    words = [sys.executable, "-I", "-S", reaper.__file__, str(home.resolve()), str(os.getpid())]
    # In a session of its own, where no Ctrl-C and no signal to the job's group reaches it.
    watching = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        yield
    finally:
        watching.communicate()


def _use_given_token() -> dict[str, str]:
    """The mode in which Ray sends a token, if one is given: Ray itself wants both."""
    is_given = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    return {"RAY_AUTH_MODE": "token"} if is_given and "RAY_AUTH_MODE" not in os.environ else {}


@contextlib.contextmanager
def _keep_signal_handler() -> Iterator[None]:
    """Restore our SIGTERM handler: ray.init installs one that exits at once."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _change_directory(folder: Path) -> Iterator[None]:
    """Work in a folder; return by handle, since Ray unpacks a submitted job's folder anew."""
    before = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


@contextlib.contextmanager
def _hide_start_messages() -> Iterator[None]:
    """Hide what Ray's C++ side writes to stderr, unless the start fails."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as hidden:
        stderr = os.dup(2)
        os.dup2(hidden.fileno(), 2)
        try:
            yield
        except TransientError:  # its message is enough
            raise
        except BaseException:
            hidden.seek(0)
            os.write(stderr, hidden.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _connect(home: Path, address: str | None, num_cpus: int | None) -> None:
    if address is not None:
        try:
            _check_listening(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, AuthenticationError) as error:
            raise TransientError(
                f"no Ray cluster answers at {address!r}; check --address, RAY_ADDRESS and the "
                "cluster's token, or leave them out for an embedded Ray"
            ) from error
        return
    ray.init(
        address="local",
        num_cpus=num_cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=str(home),
    )


def _check_listening(address: str) -> None:
    """OSError if nothing listens at the address: Ray itself retries for minutes."""
    place = re.fullmatch(r"(?:ray://)?\[?([^\]/]+?)\]?:(\d+)", address)
    if place is not None:
        host, port = place.groups()
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


@contextlib.contextmanager
def _ray_environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for the length of a block, which Ray's cached ones follow.

    Ray reads the mode and token of authentication once in the life of a process. With those of an
    earlier session a driver refuses what the head of another cluster asks it, and the head takes
    the driver's actors for abandoned.
    """
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    _reread_authentication()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _reread_authentication()


def _reread_authentication() -> None:
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
