"""A GPU in plain Python: streams whose work is done when something waits for it, or never.

As on the real one, a launch returns at once, streams keep their own order and run beside each other
unless one is told to wait for another, errors surface at a wait, and memory that Python has given
up is used for something else, whatever was launched on it.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

GARBAGE = np.float32(-7)  # what memory held before


@dataclass(eq=False)
class FakeStream:
    """Work in order, of which the first `num_done` pieces are done."""

    work: list[Callable[[], None]] = field(default_factory=list)
    num_done: int = 0

    def launch(self, piece: Callable[[], None]) -> None:
        self.work.append(piece)

    def run(self, end: int) -> None:
        while self.num_done < end:
            self.num_done += 1
            self.work[self.num_done - 1]()

    def wait_stream(self, other: "FakeStream") -> None:
        end = len(other.work)
        self.launch(lambda: other.run(end))


class FakeEvent:
    """A place in a stream's work."""

    def __init__(self, blocking: bool) -> None:
        assert blocking, "a thread that waits for another kind of event keeps a core busy"

    def record(self, stream: FakeStream) -> None:
        self.stream, self.end = stream, len(stream.work)

    def synchronize(self) -> None:
        self.stream.run(self.end)


class FakeTensor:
    """Numbers of a device, not computed yet, or pinned memory of the host."""

    def __init__(self, shape: tuple[int, ...], cuda: "FakeCuda") -> None:
        self.shape, self.dtype, self.device = shape, np.float32, "fake"
        self.values = np.full(shape, GARBAGE)
        self.cuda = cuda

    def copy_(self, source: "FakeTensor", non_blocking: bool) -> None:
        assert non_blocking
        held = weakref.ref(source)
        self.cuda.stream_now.launch(
            lambda: np.copyto(self.values, GARBAGE if held() is None else held().values)
        )

    def numpy(self) -> np.ndarray:
        return self.values


class FakeCuda:
    """The part of `torch` and `torch.cuda` that transfer.py uses for a GPU."""

    Event = FakeEvent
    from_numpy = staticmethod(torch.from_numpy)

    def __init__(self) -> None:
        self.stream_now = FakeStream()

    @property
    def cuda(self) -> "FakeCuda":
        return self

    def current_stream(self, device: str) -> FakeStream:
        assert device == "fake"
        return self.stream_now

    @contextmanager
    def stream(self, chosen: FakeStream) -> Iterator[None]:
        before, self.stream_now = self.stream_now, chosen
        yield
        self.stream_now = before

    def empty(self, shape: tuple[int, ...], dtype: type, pin_memory: bool) -> FakeTensor:
        assert pin_memory and dtype is np.float32
        return FakeTensor(shape, self)
