"""Threads: fetch the next input ahead, work on several, watch beside what is done.

In:  an iterable and a function.
Out: the same items, or the same calls, sooner. The first error stops the rest and is raised.
"""

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def beside(watch: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """What is done meanwhile has a watch, whose event says that it is over."""
    stop = threading.Event()
    thread = threading.Thread(target=watch, args=(stop,), daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def ahead(items: Iterable[T], depth: int = 1) -> Generator[T, None, None]:
    """The items, made by a thread that stays up to `depth` of them in front."""
    done = object()
    stop = threading.Event()
    ready: queue.Queue = queue.Queue(maxsize=depth)
    errors: list[BaseException] = []

    def offer(item: object) -> None:
        while not stop.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def produce() -> None:
        try:
            for item in items:
                offer(item)
                if stop.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - raised again by the consumer
            errors.append(error)
        offer(done)

    thread = threading.Thread(target=produce, daemon=True, name="ahead")
    thread.start()
    try:
        while (item := ready.get()) is not done:
            yield item
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


def on_threads(work: Callable[[T], None], items: Iterable[T], num_threads: int) -> None:
    """Call `work` on every item; with one thread, in the caller's own."""
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
            for item in _in_turns(source, turn, stop):
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


def _in_turns(source: Iterator[T], turn: threading.Lock, stop: threading.Event) -> Iterator[T]:
    """One thread's share of a source that several threads draw from."""
    while not stop.is_set():
        try:
            with turn:
                item = next(source)
        except StopIteration:
            return
        yield item
