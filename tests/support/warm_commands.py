"""Commands under test, forked from a process that has imported what they need.

`sbert embed` imports torch and transformers for six seconds before it does anything. Here it is a
fork of Python's fork server. From the first line of the command on, everything is as users have it;
a Ray that it starts, and the workers of that, begin as they do for users.
"""

import atexit
import multiprocessing
import os
import signal
import sys
from pathlib import Path

from support import sabotage, warm_workers

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([*warm_workers.PRELOADED, "pipelines.cli.main", __name__])


class WarmProcess:
    """A running command, with those attributes of `subprocess.Popen` that tests use."""

    def __init__(self, words: list[str], log: Path, env: dict[str, str]) -> None:
        self._process = SERVER.Process(target=run_command, args=(words, str(log), env, os.getcwd()))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"still running after {timeout} s"
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def run_command(words: list[str], log: str, env: dict[str, str], folder: str) -> None:
    """Run a command in this process, to its end."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = words
    sabotage.apply()
    os._exit(_exit_code())


def _exit_code() -> int:
    from pipelines.cli.main import main  # noqa: PLC0415 - preloaded by the fork server

    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)
