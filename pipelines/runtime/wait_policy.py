"""How long a job waits for what others hold: room on the cluster, an output.

Waiting is no part of a job's result, so it is no part of a spec: the command sets it once.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """seconds: at most. waits_for_others: for a run that holds the output, too."""

    seconds: float = 600.0
    waits_for_others: bool = False


_patience: ContextVar[Patience] = ContextVar("patience", default=Patience())  # noqa: B039 - frozen


@contextlib.contextmanager
def patience(seconds: float, *, waits_for_others: bool = False) -> Iterator[None]:
    token = _patience.set(Patience(seconds, waits_for_others))
    try:
        yield
    finally:
        _patience.reset(token)


def current_patience() -> Patience:
    return _patience.get()
