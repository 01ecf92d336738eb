"""Losses and dev scores of a training run, and its best epoch."""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sbert_core.json_record import Number, decode
from sbert_core.training.loop import StepReport

RECENT_STEPS = 50
MAX_POINTS = 400


@dataclass(slots=True)
class TrainHistory:
    """A run so far. The fields are the keys of its JSON file.

    losses: one per step. dev: (epoch, score), epoch 0 before any step. seconds: of all steps.
    best_epoch: 0 until an epoch has been scored; epoch 0 is never the best.
    """

    losses: list[float] = field(default_factory=list)
    rows: int = 0
    seconds: float = 0.0
    dev: list[tuple[int, float]] = field(default_factory=list)
    best_epoch: int = 0
    best_score: float = -math.inf

    @classmethod
    def read(cls, path: Path) -> "TrainHistory":
        """The history in a file; ValueError if its values have other types."""
        found = decode(_HistoryJson, json.loads(path.read_text(encoding="utf-8")), str(path))
        return cls(
            losses=list(found.losses),
            rows=found.rows,
            seconds=found.seconds,
            dev=[(int(epoch), score) for epoch, score in found.dev],
            best_epoch=found.best_epoch,
            best_score=found.best_score,
        )

    def write(self, path: Path) -> None:
        """Write a file that `read` reads."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def add(self, report: StepReport, seconds: float) -> None:
        """Add a step that took so many seconds."""
        self.seconds += seconds
        self.losses.append(report.loss)
        self.rows += report.num_rows

    def add_dev_score(self, epoch: int, score: float) -> bool:
        """Add the dev score after an epoch; is it the best so far?"""
        self.dev.append((epoch, score))
        is_best = epoch > 0 and score > self.best_score
        if is_best:
            self.best_epoch, self.best_score = epoch, score
        return is_best

    @property
    def recent_loss(self) -> float:
        """Mean loss of the last 50 steps."""
        recent = self.losses[-RECENT_STEPS:]
        return sum(recent) / max(1, len(recent))

    def curve(self) -> list[tuple[int, float]]:
        """(step, loss), at most 400 points, each the mean of the steps up to it."""
        width = max(1, -(-len(self.losses) // MAX_POINTS))
        groups = [self.losses[i : i + width] for i in range(0, len(self.losses), width)]
        return [((i + 1) * width, sum(group) / len(group)) for i, group in enumerate(groups)]


@dataclass(frozen=True, slots=True)
class _HistoryJson:
    losses: tuple[Number, ...]
    rows: int
    seconds: float
    dev: tuple[tuple[Number, ...], ...]
    best_epoch: int
    best_score: Number
