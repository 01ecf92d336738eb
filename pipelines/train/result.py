"""The last checkpoint -> the encoder's folder, with a record, a plot and a model card."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from pipelines.artifacts.manifest import library_versions
from pipelines.artifacts.sidecars import TRAINING
from pipelines.train.report import TrainReport
from pipelines.train.spec import TrainSpec
from sbert_core.report.line_chart import Series, line_chart
from sbert_core.training.dev_eval import DevSet
from sbert_core.training.history import TrainHistory
from sbert_core.training.model_card import model_card
from workers.train import ENCODER, HISTORY, TrainJob


def write_result(
    spec: TrainSpec, job: TrainJob, checkpoint: Path, num_workers: int, result: Path
) -> TrainReport:
    """Write the folder `result` from a checkpoint; the report of the run."""
    shutil.rmtree(result, ignore_errors=True)
    shutil.copytree(checkpoint / ENCODER, result)
    history = TrainHistory(**json.loads((checkpoint / HISTORY).read_text(encoding="utf-8")))
    dev_scores = {int(epoch): score for epoch, score in history.dev}
    held_out = job.dev_rows or (DevSet(job.kind, [], None) if job.dev_files else None)
    report = TrainReport(
        out=str(spec.out),
        rows=history.rows,
        steps=len(history.losses),
        workers=num_workers,
        seconds=round(history.seconds, 1),
        rows_per_second=round(history.rows / max(1e-9, history.seconds), 2),
        measure=held_out.measure if held_out else None,
        start_score=dev_scores.get(0),
        best_epoch=history.best_epoch or spec.epochs,
        best_score=history.best_score if history.best_epoch else None,
    )
    facts = {
        "run": job.run,
        "report": asdict(report),
        "spec": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(spec).items()},
        "data": {"rows": [rows for _, rows in job.train_files], "classes": job.classes},
        "loss": history.curve(),
        "dev": history.dev,
        "versions": library_versions(),
    }
    steps_per_epoch = max(1, len(history.losses) // spec.epochs)
    chart = line_chart(
        f"{spec.objective or 'cross-encoder'} on {Path(spec.shards).name}",
        "step",
        [
            Series("loss", history.curve()),
            Series(
                f"dev {report.measure}",
                [(epoch * steps_per_epoch, score) for epoch, score in history.dev],
                is_second=True,
            ),
        ],
    )
    (result / "training.svg").write_text(chart, encoding="utf-8")
    (result / "README.md").write_text(model_card(facts), encoding="utf-8")
    (result / TRAINING).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return report
