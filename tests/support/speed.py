"""Which cases of a test `make quick` runs; `make test` runs them all."""

from collections.abc import Callable, Iterable

import pytest


def cases(values: Iterable[tuple], is_quick: Callable[..., bool]) -> list:
    """Values for parametrize: those that are not quick are marked slow."""
    return [
        value if is_quick(*value) else pytest.param(*value, marks=pytest.mark.slow)
        for value in values
    ]
