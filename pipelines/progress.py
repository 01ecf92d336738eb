"""Progress of long work: a bar on a terminal, a plain line every ten seconds in a log."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

log = logging.getLogger(__name__)

LOG_EVERY_SECONDS = 10.0

Advance = Callable[[int, int], None]


@contextmanager
def progress(label: str, num_rows: int, by: str = "") -> Iterator[Advance]:
    """A function to call with the rows and tokens done since the last call.

    by: who does the work, shown beside the speed.
    """
    if sys.stderr.isatty():
        with _bar(label, num_rows, by) as advance:
            yield advance
    else:
        yield _lines(label, num_rows, by)


@contextmanager
def _bar(label: str, num_rows: int, by: str) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    meter = _Meter(num_rows)
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=num_rows, speed=by)

        def advance(rows: int, tokens: int) -> None:
            meter.add(rows, tokens)
            bars.update(task, advance=rows, speed=", ".join(filter(None, (meter.speed, by))))

        yield advance


def _lines(label: str, num_rows: int, by: str) -> Advance:
    meter = _Meter(num_rows)
    with_whom = f", {by}" if by else ""
    last = time.monotonic()

    def advance(rows: int, tokens: int) -> None:
        nonlocal last
        meter.add(rows, tokens)
        now = time.monotonic()
        if now - last >= LOG_EVERY_SECONDS or meter.rows == num_rows:
            last = now
            log.info("%s: %s%s", label, meter, with_whom)

    return advance


class _Meter:
    """Counts, and what they say of speed and of the time that is left."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.rows = 0
        self.tokens = 0
        self.start = time.monotonic()

    def add(self, rows: int, tokens: int) -> None:
        self.rows += rows
        self.tokens += tokens

    @property
    def seconds(self) -> float:
        return max(1e-9, time.monotonic() - self.start)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def speed(self) -> str:
        return f"{self.tokens_per_second:,.0f} tokens/s" if self.tokens else ""

    def __str__(self) -> str:
        left = self.seconds * (self.num_rows - self.rows) / max(1, self.rows)
        done = f"{self.rows:,} of {self.num_rows:,} rows"
        return ", ".join(filter(None, (done, self.speed, f"{left:.0f} s left")))
