"""A real head on loopback that asks for a token."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.s3 import free_ports

BIN = Path(sys.executable).parent
TRIES = 3  # a head gives up after 30 s, which a busy machine may need


@dataclass(frozen=True)
class Head:
    """address: of the cluster. dashboard: its URL. environment: of a client with the token."""

    address: str
    dashboard: str
    token: Path
    environment: dict[str, str]


def stranger(home: Path) -> dict[str, str]:
    """An environment that knows no token."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_A")}
    return {**kept, "HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}"}


def sbert(*words, env: dict[str, str], seconds: float = 240) -> subprocess.CompletedProcess:
    """A command in an environment, to its end."""
    words = [str(word) for word in (BIN / "sbert", *words)]
    return subprocess.run(
        words, env=env, capture_output=True, text=True, timeout=seconds, check=False
    )


@contextlib.contextmanager
def token_head() -> Iterator[Head]:
    folder = Path(tempfile.mkdtemp(prefix="sb", dir="/tmp"))  # short: unix sockets lie below it
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    client = {**stranger(folder), "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    process = None
    try:
        for _ in range(TRIES):
            port, dashboard, agent, for_clients = free_ports(4)
            options = {
                "port": port,
                "dashboard-host": "127.0.0.1",
                "dashboard-port": dashboard,
                "dashboard-agent-listen-port": agent,
                "ray-client-server-port": for_clients,
                "temp-dir": folder / "r",
                "num-cpus": 3,
                "object-store-memory": 150 * 2**20,
            }
            words = ["start", "--head", "--block", "--include-dashboard=true"]
            words += [f"--{name}={value}" for name, value in options.items()]
            with (folder / "log").open("w") as log:
                process = subprocess.Popen(
                    [BIN / "ray", *words],
                    env=client | {"RAY_AUTH_MODE": "token"},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            if _is_up(process, folder / "log"):
                break
        else:
            raise AssertionError((folder / "log").read_text())
        yield Head(f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}", token, client)
    finally:
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _is_up(process: subprocess.Popen, log: Path) -> bool:
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if "Ray runtime started" in log.read_text():
            return True
        time.sleep(0.2)
    return False
