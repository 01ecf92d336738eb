"""A board on which workers write how far they are, for the driver to read.

It lies in the key-value store that every Ray has. An actor would be one more process, and an idle
one costs 1 % of a core: Ray wakes each a hundred times a second.
"""

import contextlib
import secrets
import time

from ray.exceptions import RayError
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)

NAMESPACE = "sbert-mill"
REPORT_SECONDS = 2.0


class Board:
    """One worker's line on the board of a run: its rows and tokens so far.

    Work that is done again after a death counts twice: the board is a display, not an account.
    A board that cannot be reached costs the display, not the job.
    """

    def __init__(self, run: str) -> None:
        self.key = f"{run}/{secrets.token_hex(8)}"
        self.rows = self.tokens = 0
        self.last = time.monotonic()

    def add(self, rows: int, tokens: int) -> None:
        self.rows += rows
        self.tokens += tokens
        if time.monotonic() - self.last > REPORT_SECONDS:
            self.write()

    def write(self) -> None:
        self.last = time.monotonic()
        with contextlib.suppress(RayError):
            _internal_kv_put(self.key, f"{self.rows} {self.tokens}", namespace=NAMESPACE)


def totals(run: str) -> tuple[int, int]:
    """Rows and tokens of all workers of a run."""
    lines = [_internal_kv_get(key, namespace=NAMESPACE) for key in _keys(run)]
    counts = [tuple(map(int, line.split())) for line in lines if line]
    return sum(rows for rows, _ in counts), sum(tokens for _, tokens in counts)


def wipe(run: str) -> None:
    """Remove a run's lines."""
    for key in _keys(run):
        _internal_kv_del(key, namespace=NAMESPACE)


def _keys(run: str) -> list[bytes]:
    return _internal_kv_list(f"{run}/", namespace=NAMESPACE)
