"""How much memory of its own a process holds, and what it does with memory it is done with."""

import ctypes
import sys
from pathlib import Path

import pyarrow as pa

_peak = 0


def private_bytes() -> int:
    """Memory no other process shares; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
    return 1024 * sum(kilobytes)


def peak_private_bytes() -> int:
    """The most seen so far by calls of this function, in this process."""
    global _peak
    _peak = max(_peak, private_bytes())
    return _peak


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
NEVER = 2**30


def keep_freed_memory() -> None:
    """For a process that does the same thing over and over: freed memory is used again.

    By default glibc returns it to the system after every layer of a model and pays for page faults
    in the next: 1-2 % of an encoder's time (MiniLM, batches of 1024 tokens).
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
        libc.mallopt(M_MMAP_THRESHOLD, NEVER)


def return_freed_memory() -> None:
    """Between two pieces of work: what allocators have kept goes back to the system."""
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
