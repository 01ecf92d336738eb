"""What a watcher of the cluster sees while a unit takes its time."""

import threading
import time

import pytest

from pipelines.runtime import metrics


class Recorded:
    """Stands for the gauges of Ray: when each was set, and to what."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float, dict[str, str]]] = []

    def gauge(self, name: str) -> "Recorded.Named":
        return Recorded.Named(self, name)

    class Named:
        def __init__(self, record: "Recorded", name: str) -> None:
            self.record, self.name = record, name

        def set(self, value: float, tags: dict[str, str]) -> None:
            self.record.calls.append((self.name, value, tags))

    def seen(self, name: str, stage: str) -> list[float]:
        return [v for found, v, tags in self.calls if (found, tags["stage"]) == (name, stage)]


@pytest.fixture
def recorded(monkeypatch):
    recorded = Recorded()
    monkeypatch.setattr(metrics, "_gauge", recorded.gauge)
    monkeypatch.setattr(metrics, "BEAT_SECONDS", 0.02)
    return recorded


def heart() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "metrics"]


def test_values_are_said_again_until_the_session_ends(recorded, monkeypatch):
    is_up = True
    monkeypatch.setattr(metrics, "_is_exported", lambda: is_up)
    metrics.observe("embed", units_done=1, units_total=9)
    metrics.observe("fill", units_done=3)
    assert len(heart()) == 1
    wait_until(lambda: len(recorded.seen("sbert_units_done", "embed")) > 3)
    metrics.observe("embed", units_done=2)
    wait_until(lambda: recorded.seen("sbert_units_done", "embed")[-2:] == [2.0, 2.0])
    assert recorded.seen("sbert_units_total", "embed")[-1] == 9.0
    assert set(recorded.seen("sbert_units_done", "fill")) == {3.0}
    is_up = False
    wait_until(lambda: not heart())
    number = len(recorded.calls)
    metrics.observe("embed", units_done=3)
    assert len(recorded.calls) == number


def test_another_session_does_not_repeat_the_words_of_the_last(recorded, monkeypatch):
    is_up = True
    monkeypatch.setattr(metrics, "_is_exported", lambda: is_up)
    metrics.observe("embed", units_done=1)
    is_up = False
    wait_until(lambda: not heart())
    is_up = True
    recorded.calls.clear()
    metrics.observe("pairs", units_done=1)
    wait_until(lambda: len(recorded.seen("sbert_units_done", "pairs")) > 2)
    assert not recorded.seen("sbert_units_done", "embed")
    is_up = False
    wait_until(lambda: not heart())


def wait_until(holds, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
