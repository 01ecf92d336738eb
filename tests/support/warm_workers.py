"""Ray workers forked from a process that has imported what they need.

A worker of the embed job imports torch and transformers for six seconds and then embeds forty texts
in one. Half an hour of the tests was that import. Here a worker takes a tenth of a second: the
cluster of the tests starts `python warm_workers.py default_worker.py ...`, which hands its
arguments, environment and output to the factory and ends; the factory forks, and the child becomes
the worker. Ray knows a worker by the token among its arguments, not by the process it started.

Commands under test that start a Ray of their own start its workers as users do.
"""

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import ClassVar

SOCKET = "SBERT_TEST_WORKER_FACTORY"
READY = b"ready\n"
ENVIRONMENT = "--serialized-runtime-env-context="
# Not Ray, which keeps what it finds in the environment when it is imported.
PRELOADED = (
    "pyarrow.dataset",
    "pyarrow.parquet",
    "fsspec",
    "jsonschema",
    "pydantic",
    "transformers.models.bert.modeling_bert",
    "sbert_core.encoder.cross_encoder",
    "sbert_core.encoder.documents",
    "sbert_core.encoder.encoder",
    "sbert_core.evaluation.correlation",
    "sbert_core.join.certificate",
    "sbert_core.training.loop",
)


class WorkerFactory:
    """A running factory. node_options: arguments of a Ray node whose workers it forks."""

    node_options: ClassVar[dict[str, str]] = {"setup_worker_path": __file__}

    def __init__(self, listener: socket.socket) -> None:
        number = listener.fileno()
        # -P: this file's folder stays off the path, whose modules hide others of the same name.
        words = [sys.executable, "-P", __file__, str(number)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, pass_fds=[number])

    def wait_until_ready(self) -> None:
        """Until its imports are done. Without this, tests would wait for a dead one's workers."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == READY, "the worker factory failed, see its output"

    def stop(self) -> None:
        self._process.communicate()


@contextlib.contextmanager
def worker_factory() -> Iterator[WorkerFactory]:
    """A factory that runs during a block."""
    with tempfile.TemporaryDirectory(prefix="sbert-") as folder, listen_in(folder) as listener:
        factory = WorkerFactory(listener)
        os.environ[SOCKET] = listener.getsockname()  # for the launchers, which raylets start
        try:
            yield factory
        finally:
            del os.environ[SOCKET]
            factory.stop()


@contextlib.contextmanager
def listen_in(folder: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/factory")
        listener.listen(64)
        yield listener


def launch(arguments: list[str]) -> None:
    """Hand a worker's arguments, environment and streams to the factory.

    arguments: the worker's script and options, and two for Ray's script that we stand for.
    """
    own = [word for word in arguments if word.startswith(("--language=", ENVIRONMENT))]
    for word in own:
        if word.startswith(ENVIRONMENT):
            os.environ.update(json.loads(word.removeprefix(ENVIRONMENT))["env_vars"])
    arguments = [word for word in arguments if word not in own]
    with socket.socket(socket.AF_UNIX) as factory:
        factory.connect(os.environ[SOCKET])
        socket.send_fds(factory, [b"."], [0, 1, 2])
        factory.sendall(json.dumps([arguments, dict(os.environ), os.getcwd()]).encode())
        factory.shutdown(socket.SHUT_WR)
        factory.recv(1)  # until it has forked


def serve(listener: socket.socket) -> None:
    """Fork a worker for every launcher, until the tests close our standard input."""
    for name in PRELOADED:
        import_module(name)
    gc.freeze()  # else every collection of a worker visits, and so copies, what was imported here
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(1, READY)
    while listener in select.select([sys.stdin, listener], [], [])[0]:
        launcher, _ = listener.accept()
        with launcher:
            _, streams, _, _ = socket.recv_fds(launcher, 1, 3)
            with launcher.makefile("rb") as message:
                arguments, environment, folder = json.load(message)
            if os.fork() == 0:
                listener.close()
                launcher.close()
                become(arguments, environment, folder, streams)
                os._exit(0)
            for stream in streams:
                os.close(stream)


def become(arguments: list[str], environment: dict, folder: str, streams: list[int]) -> None:
    """Run a worker in this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).parent)
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        launch(sys.argv[1:])
