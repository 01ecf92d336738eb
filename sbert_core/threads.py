"""Threads: prefetch or map inputs, process items in parallel, run a helper in the background.

In:  an iterable and a function.
Out: the same items or the same calls. The first error stops the rest and is raised.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
Result = TypeVar("Result")


class _End:
    """Marks the end of the items in the queue."""


@contextmanager
def background(watch: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run `watch(stop)` in a thread named `name` while the block runs; `stop` is set on exit."""
    stop = threading.Event()
    thread = threading.Thread(target=watch, args=(stop,), daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def prefetch(items: Iterable[T], depth: int = 1) -> Generator[T, None, None]:
    """Yield the items in order; a thread produces up to `depth` of them in advance.

    An error of `items` is raised after the items before it.
    """
    done = _End()
    stop = threading.Event()
    ready: queue.Queue[T | _End] = queue.Queue(maxsize=depth)
    errors: list[BaseException] = []

    def offer(item: T | _End) -> None:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def produce() -> None:
        try:
            for item in items:
                offer(item)
                if stop.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - raised again by the consumer
            errors.append(error)
        offer(done)

    thread = threading.Thread(target=produce, daemon=True, name="prefetch")
    thread.start()
    try:
        while not isinstance(item := ready.get(), _End):
            yield item
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def map_ahead(
    work: Callable[[T], Result], items: Iterable[T], num_ahead: int
) -> Generator[Result, None, None]:
    """Yield `work(item)` in order; threads compute the next `num_ahead` of them in advance.

    An error of an item is raised in its place, after the results before it.
    """
    pool = ThreadPoolExecutor(num_ahead, thread_name_prefix="map-ahead")
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > num_ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def parallel_for(work: Callable[[T], None], items: Iterable[T], num_threads: int) -> None:
    """Call `work` on every item from `num_threads` threads; one thread means the caller's.

    The first error, of `work` or of `items`, stops all threads and is raised.
    """
    if num_threads == 1:
        for item in items:
            work(item)
        return
    source = iter(items)
    turn = threading.Lock()
    stop = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for item in _next_items(source, turn, stop):
                work(item)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        stop.set()
    if errors:
        raise errors[0]


def _next_items(source: Iterator[T], turn: threading.Lock, stop: threading.Event) -> Iterator[T]:
    """Items for one of several threads that share a source."""
    while not stop.is_set():
        try:
            with turn:
                item = next(source)
        except StopIteration:
            return
        yield item
