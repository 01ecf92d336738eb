"""FAISS as a library: its threads, and the parts of its interface its type stubs leave out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import faiss

# faiss's Python layer adds functions, keyword arguments and classes the stubs do not list.
untyped: Any = faiss


@contextmanager
def faiss_threads(num_threads: int) -> Iterator[None]:
    """Run a block with this many OpenMP threads in FAISS; restore the former number after it."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(num_threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
