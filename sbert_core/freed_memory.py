"""What glibc does with memory that is freed.

By default it goes back to the system after every layer of a model, and page faults in the next one
cost 2-4 % of an encoder's time on a CPU (MiniLM; the faster the number format, the more).
"""

import ctypes
import sys

import pyarrow as pa

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
NEVER = 2**30
# Where glibc's own thresholds end: it raises them as soon as a block of 32 MB is freed.
LARGEST_MMAP_THRESHOLD, LARGEST_TRIM_THRESHOLD = 32 * 2**20, 64 * 2**20


def keep_some_freed_memory() -> None:
    """Make glibc keep up to 64 MB of freed memory for reuse, as it does in many programs anyway."""
    _set_thresholds(LARGEST_MMAP_THRESHOLD, LARGEST_TRIM_THRESHOLD)


def keep_freed_memory() -> None:
    """Make glibc keep all freed memory, for a process that only repeats the same work."""
    _set_thresholds(NEVER, NEVER)


def return_freed_memory() -> None:
    """Return memory that allocators have kept to the system, between two units of work."""
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def _set_thresholds(mmap_bytes: int, trim_bytes: int) -> None:
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, mmap_bytes)
        libc.mallopt(M_TRIM_THRESHOLD, trim_bytes)
