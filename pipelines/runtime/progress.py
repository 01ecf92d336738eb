"""Progress of long work: a bar on a terminal, a plain line every ten seconds in a log."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Protocol

from ray.exceptions import RayError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from pipelines.runtime.metrics import observe
from sbert_core.threads import background
from workers.common import progress_board as board

log = logging.getLogger(__name__)

LOG_EVERY_SECONDS = 10.0
POLL_SECONDS = 1.0

_shown: list[tuple[Progress, TaskID]] = []  # the display of a run, and the stage that runs


class Advance(Protocol):
    """Told of the rows and tokens done since the last call, and of a remark if any."""

    def __call__(self, rows: int, tokens: int, remark: str = "") -> None: ...


@contextmanager
def progress(
    label: str, num_rows: int, num_tokens: int = 0, by: str = "", unit: str = "rows"
) -> Iterator[Advance]:
    """A function to call with the rows and tokens done since the last call, and a remark if any.

    num_tokens: about how many there are. Texts go by length, so rows say little of the time left.
    by: who does the work, shown beside the speed. unit: what is counted, if not rows.
    """
    meter = _Meter(num_rows, num_tokens, by, unit)
    if sys.stderr.isatty():
        with _bar(label, meter) as advance:
            yield _with_metrics(label, meter, advance)
    else:
        yield _with_metrics(label, meter, _lines(label, meter))


def _with_metrics(label: str, meter: "_Meter", advance: Advance) -> Advance:
    """Wrap `advance` so that every call also sets the metrics of the stage."""
    began = time.monotonic()

    def advance_and_observe(rows: int, tokens: int, remark: str = "") -> None:
        advance(rows, tokens, remark)
        observe(
            label,
            rows_total=meter.rows,
            tokens_total=meter.tokens,
            tokens_per_second=meter.tokens_per_second,
            stage_seconds=time.monotonic() - began,
        )

    return advance_and_observe


@contextmanager
def show_stages(names: Sequence[str]) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """One display over the stages of a run: what is done, what runs, what waits."""
    if not sys.stderr.isatty():
        yield lambda name: nullcontext()
        return
    with _bars() as bars:
        tasks = {name: bars.add_task(name, total=1.0, said="waits") for name in names}

        @contextmanager
        def shown(name: str) -> Iterator[None]:
            start = time.monotonic()
            bars.update(tasks[name], said="starts")
            _shown.append((bars, tasks[name]))
            try:
                yield
            finally:
                _shown.pop()
            took = f"{time.monotonic() - start:,.1f} s"
            bars.update(tasks[name], completed=1.0, said=took)

        yield shown


def _bars() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"))
    return Progress(*columns, console=Console(stderr=True))


@contextmanager
def _bar(label: str, meter: "_Meter") -> Iterator[Advance]:
    """A bar of its own, or that of the running stage."""
    with ExitStack() as stack:
        if _shown:
            bars, task = _shown[-1]
            lead = f"{label}: "
        else:
            bars, lead = stack.enter_context(_bars()), ""
            task = bars.add_task(label, total=1.0, said=meter.by)

        def advance(rows: int, tokens: int, remark: str = "") -> None:
            meter.add(rows, tokens, remark)
            bars.update(task, completed=meter.share_done, said=f"{lead}{meter}")

        yield advance


def _lines(label: str, meter: "_Meter") -> Advance:
    last = time.monotonic()

    def advance(rows: int, tokens: int, remark: str = "") -> None:
        nonlocal last
        meter.add(rows, tokens, remark)
        now = time.monotonic()
        if now - last >= LOG_EVERY_SECONDS or meter.rows == meter.num_rows:
            last = now
            log.info("%s: %s", label, meter)

    return advance


class _Meter:
    """Counts, and from them the speed and the time left.

    The clock starts with the first work done, so that start-up time is not counted.
    """

    def __init__(
        self, num_rows: int, num_tokens: int = 0, by: str = "", unit: str = "rows"
    ) -> None:
        self.num_rows = num_rows
        self.unit = unit
        self.num_tokens = num_tokens
        self.by = by
        self.rows = 0
        self.tokens = 0
        self.first = 0  # tokens and share of the first report, done before the clock started
        self.first_share = 0.0
        self.start: float | None = None
        self.remark = ""

    def add(self, rows: int, tokens: int, remark: str = "") -> None:
        self.remark = remark
        self.rows += rows
        self.tokens += tokens
        if self.start is None:
            self.start, self.first, self.first_share = time.monotonic(), tokens, self.share_done

    @property
    def seconds(self) -> float:
        return max(1e-9, time.monotonic() - (self.start or time.monotonic()))

    @property
    def share_done(self) -> float:
        """By tokens where their number is known, else by rows; done is done."""
        if self.rows >= self.num_rows:
            return 1.0
        by_rows = self.rows / max(1, self.num_rows)
        return min(0.99, self.tokens / self.num_tokens) if self.num_tokens else by_rows

    @property
    def tokens_per_second(self) -> float:
        return (self.tokens - self.first) / self.seconds

    def __str__(self) -> str:
        said = [f"{self.rows:,} of {self.num_rows:,} {self.unit}"]
        if self.tokens > self.first:
            said.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if self.first_share < self.share_done < 1:
            left = (1 - self.share_done) / (self.share_done - self.first_share)
            said.append(f"{self.seconds * left:,.0f} s left")
        return ", ".join(part for part in (*said, self.remark, self.by) if part)


class SpeedLog:
    """Tokens per second over the time of a job, for its report."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def record(self, advance: Advance) -> Advance:
        """Wrap `advance` so that every call is also recorded."""

        def recorded(rows: int, tokens: int, remark: str = "") -> None:
            self._seen.append((time.monotonic(), self.tokens + tokens))
            advance(rows, tokens, remark)

        return recorded

    @property
    def tokens(self) -> int:
        return self._seen[-1][1] if self._seen else 0

    def points(self, max_points: int = 60) -> list[list[float]]:
        """Seconds since the first work was seen, and the speed since the point before."""
        if not self._seen:
            return []
        start = then = self._seen[0][0]
        before = self._seen[0][1]
        least = max(2 * POLL_SECONDS, (self._seen[-1][0] - start) / max_points)
        found: list[list[float]] = []
        for now, tokens in self._seen[1:]:
            if now - then >= least:
                found.append([round(now - start, 1), round((tokens - before) / (now - then), 1)])
                then, before = now, tokens
        return found


@contextmanager
def poll_progress(run: str, advance: Advance) -> Iterator[None]:
    """Show what workers write to the run's progress board; without it only the display stops."""

    def poll(stop: threading.Event) -> None:
        rows = tokens = 0
        while True:
            is_last = stop.wait(POLL_SECONDS)
            with suppress(RayError):
                seen = board.read_totals(run)
                if seen.rows > rows:
                    advance(seen.rows - rows, seen.tokens - tokens, seen.remark)
                    rows, tokens = seen.rows, seen.tokens
            if is_last:
                return

    board.clear(run)
    try:
        with background(poll, "progress"):
            yield
    finally:
        board.clear(run)
