"""Where a job's time goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StageTimer:
    """Seconds since the stage began, and of each phase in order."""

    def __init__(self) -> None:
        self.start = time.time()
        self.phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    @property
    def seconds(self) -> float:
        """Since the stage began."""
        return time.time() - self.start
