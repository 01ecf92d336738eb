"""Private memory of a process, and what glibc does with memory that is freed."""

import ctypes
import sys
from pathlib import Path

import pyarrow as pa

_peak = 0


def private_bytes() -> int:
    """Memory that is not shared with other processes; 0 on systems without smaps_rollup."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
    return 1024 * sum(kilobytes)


def peak_private_bytes() -> int:
    """The largest value of `private_bytes` at calls of this function in this process."""
    global _peak
    _peak = max(_peak, private_bytes())
    return _peak


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
NEVER = 2**30


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for reuse, for a process that repeats the same work.

    By default it is returned to the system after every layer of a model, and page faults in the
    next one cost 1-2 % of an encoder's time (MiniLM, batches of 1024 tokens).
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
        libc.mallopt(M_MMAP_THRESHOLD, NEVER)


def return_freed_memory() -> None:
    """Return memory that allocators have kept to the system, between two units of work."""
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
