"""What came out of a training run."""

from dataclasses import dataclass

from pipelines.runtime.stage import StageReport


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport(StageReport):
    """What came out of training. Scores are those of the best epoch on held-out rows."""

    rows: int
    steps: int
    workers: int
    rows_per_second: float
    measure: str | None
    start_score: float | None
    best_epoch: int
    best_score: float | None
