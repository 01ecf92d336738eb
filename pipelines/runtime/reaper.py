"""Kill what is left of an embedded Ray as soon as its driver is gone, however it ended.

In:  the folder of the session and the driver's process id; standard input, which the driver closes
     after `ray.shutdown()`, and the kernel closes for a driver that was killed.
Out: no process that writes to a file of that folder.

Ray's processes end by themselves when their raylet is gone, but not in a time that can be relied
on: its agents were there 45 s after a kill -9 of the driver, and a controller of Ray Train of
560 MB was found that stayed for good. Such processes are killed at once. Runs as a script without
any package: it costs some 10 MB for as long as the session lasts.
"""

import contextlib
import os
import signal
import stat
import sys
import time

POLL_SECONDS = 0.05
# A process in the middle of a read from a dead network disk cannot be killed; wait no longer.
MAX_SECONDS = 30.0


def main() -> None:
    """Wait for the end of standard input, then kill who still writes to the folder."""
    folder, driver = os.path.realpath(sys.argv[1]), int(sys.argv[2])
    sys.stdin.read()
    deadline = time.monotonic() + MAX_SECONDS
    # Looks again until there is nobody: a process may start another right before its end.
    while (left := writers_of(folder, driver)) and time.monotonic() < deadline:
        for pid in left:
            end_writer(pid, folder, driver)
        time.sleep(POLL_SECONDS)


def writers_of(folder: str, driver: int) -> list[int]:
    """Every process of Ray writes its log to the folder of its session, and children theirs."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != driver and is_writer(pid, folder, driver)]


def is_writer(pid: int, folder: str, driver: int) -> bool:
    """Whoever just reads a log is no process of Ray, nor is a fork with the driver's own log."""
    files = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):  # ended meanwhile, or of another user
        for name in os.listdir(files):
            with contextlib.suppress(OSError):
                file = os.readlink(f"{files}/{name}")
                is_open_to_write = os.lstat(f"{files}/{name}").st_mode & stat.S_IWUSR
                if file.startswith(f"{folder}/") and is_open_to_write:
                    if f"_{driver}.log" not in file:
                        return True
    return False


def end_writer(pid: int, folder: str, driver: int) -> None:
    """Kill through a handle: the number may belong to somebody else by now."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if is_writer(pid, folder, driver):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


if __name__ == "__main__":
    main()
