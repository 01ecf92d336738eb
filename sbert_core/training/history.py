"""What happened while a model was trained: losses, scores, the best epoch."""

import math
from dataclasses import dataclass, field

from sbert_core.training.loop import StepReport

RECENT_STEPS = 50
MAX_POINTS = 400


@dataclass(slots=True)
class History:
    """losses: one per step; dev: (epoch, score), epoch 0 before any step; seconds: of all steps."""

    losses: list[float] = field(default_factory=list)
    rows: int = 0
    seconds: float = 0.0
    dev: list[tuple[int, float]] = field(default_factory=list)
    best_epoch: int = 0
    best_score: float = -math.inf

    def add(self, report: StepReport, seconds: float) -> None:
        self.seconds += seconds
        self.losses.append(report.loss)
        self.rows += report.num_rows

    def judged(self, epoch: int, score: float) -> None:
        self.dev.append((epoch, score))
        if epoch and score > self.best_score:
            self.best_epoch, self.best_score = epoch, score

    @property
    def recent_loss(self) -> float:
        recent = self.losses[-RECENT_STEPS:]
        return sum(recent) / max(1, len(recent))

    def curve(self) -> list[tuple[int, float]]:
        """Losses as at most 400 points, each the mean of the steps it stands for."""
        width = max(1, -(-len(self.losses) // MAX_POINTS))
        groups = [self.losses[i : i + width] for i in range(0, len(self.losses), width)]
        return [((i + 1) * width, sum(group) / len(group)) for i, group in enumerate(groups)]
