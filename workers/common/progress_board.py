"""Progress of workers, for the driver to read.

Kept in Ray's internal key-value store. An actor would be one more process, and an idle one costs
1 % of a core: Ray wakes each a hundred times a second.
"""

import contextlib
import secrets
import time
from collections.abc import Iterator
from typing import NamedTuple

import ray
from ray.exceptions import RayError
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_initialized,
    _internal_kv_list,
    _internal_kv_put,
)

NAMESPACE = "sbert-mill"
REPORT_SECONDS = 2.0
AGREED = "agreed"  # begins the names of entries that are no progress


class ProgressBoard:
    """One worker's entry on the board of a run: its rows and tokens so far.

    Work that is repeated after a crash counts twice: the board is for display only. Errors of Ray
    are ignored, since they cost the display and not the job.
    """

    def __init__(self, run: str) -> None:
        self.key = f"{run}/{secrets.token_hex(8)}"
        self.rows = self.tokens = 0
        self.remark = ""
        self.last = time.monotonic()

    def add(self, rows: int, tokens: int, remark: str = "") -> None:
        """Count finished rows and tokens; written every REPORT_SECONDS. remark: shown as it is."""
        self.rows += rows
        self.tokens += tokens
        self.remark = remark
        if time.monotonic() - self.last > REPORT_SECONDS:
            self.write()

    def write(self) -> None:
        """Write the entry now."""
        self.last = time.monotonic()
        if not _internal_kv_initialized():  # called as a plain function, outside of Ray
            return
        with contextlib.suppress(RayError):
            _internal_kv_put(
                self.key, f"{self.rows} {self.tokens} {self.remark}", namespace=NAMESPACE
            )


@contextlib.contextmanager
def count_load_crashes(run: str) -> Iterator[int]:
    """How often this actor has crashed inside this block: Ray restarts it without limit.

    Not counted in files: an actor that starts late would write into a folder that the finished job
    has tidied up.
    """
    key = f"{run}-start/{ray.get_runtime_context().get_actor_id()}"
    num_crashes = int(_internal_kv_get(key, namespace=NAMESPACE) or 0)
    _internal_kv_put(key, str(num_crashes + 1), namespace=NAMESPACE)
    try:
        yield num_crashes
    finally:
        _internal_kv_del(key, namespace=NAMESPACE)


def agree(run: str, what: str, value: str) -> str:
    """The value that the first worker of a run has stated, which is this one if it is the first."""
    key = f"{run}/{AGREED}-{what}"
    if not _internal_kv_initialized():  # called as a plain function, outside of Ray
        return value
    if not _internal_kv_put(key, value, overwrite=False, namespace=NAMESPACE):
        return value
    found = _internal_kv_get(key, namespace=NAMESPACE)
    return value if found is None else found.decode()


class BoardTotals(NamedTuple):
    """Rows and tokens of all workers of a run, and the remark of one of them."""

    rows: int
    tokens: int
    remark: str


def read_totals(run: str) -> BoardTotals:
    """The sum of all entries of a run."""
    keys = [key for key in _keys(run) if f"/{AGREED}-".encode() not in key]
    lines = [_internal_kv_get(key, namespace=NAMESPACE) for key in keys]
    parts = [line.decode().split(" ", 2) for line in lines if line]
    remarks = [remark for *_, remark in parts if remark]
    return BoardTotals(
        sum(int(rows) for rows, _, _ in parts),
        sum(int(tokens) for _, tokens, _ in parts),
        remarks[0] if remarks else "",
    )


def clear(run: str) -> None:
    """Remove all entries of a run."""
    for key in _keys(run):
        _internal_kv_del(key, namespace=NAMESPACE)


def _keys(run: str) -> list[bytes]:
    return _internal_kv_list(f"{run}/", namespace=NAMESPACE)
