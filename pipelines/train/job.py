"""Shards + base encoder -> a better encoder.

In:  a shards artifact of `sbert prepare` and a base model.
Out: a sentence-transformers folder with `training.json`, a plot of the losses, a model card, and
     the softmax head in `head/` if there is one.

The folder appears at the end, whole. Until then a hidden folder beside it holds checkpoints under
the fingerprint of the run: the same command goes on from the last one, another one starts anew.
"""

import contextlib
import json
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

from pipelines.artifacts.sidecars import TRAINING
from pipelines.artifacts.writer import Writer
from pipelines.runtime.session import job_session
from pipelines.runtime.stage import Stage, run_stage
from pipelines.runtime.timing import StageTimer
from pipelines.train.fit import fit
from pipelines.train.plan import plan_training
from pipelines.train.report import TrainReport
from pipelines.train.result import write_result
from pipelines.train.spec import TrainSpec
from sbert_core.json_record import decode


def run(spec: TrainSpec) -> list[TrainReport]:
    """Train one encoder, or one for each seed in folders of their own."""
    if spec.seeds is None:
        return [run_stage(TrainStage(spec))]
    reports = [
        run_stage(
            TrainStage(replace(spec, seed=spec.seed + n, seeds=None, out=spec.out / f"seed-{n}"))
        )
        for n in range(spec.seeds)
    ]
    scores = [report.best_score for report in reports if report.best_score is not None]
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    facts = {"scores": scores, "mean": statistics.fmean(scores) if scores else None, "sd": spread}
    (spec.out / "seeds.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return reports


class TrainStage(Stage[TrainReport, TrainReport]):
    """One training run. Its checkpoints lie in a hidden folder beside the output until the end."""

    uses_ray = False  # Ray writes to the hidden folder, so it ends before that is removed

    def __init__(self, spec: TrainSpec) -> None:
        self._spec, self.address = spec, spec.address
        self._job = plan_training(spec)
        self._out = spec.out.absolute()
        self._work = self._out.parent / f".{self._out.name}.work"

    @property
    def spec(self) -> TrainSpec:
        return self._spec

    @property
    def place(self) -> str:
        return str(self._work)

    def find_finished(self) -> TrainReport | None:
        """The report of the same run; ValueError if the folder holds anything else."""
        if (found := _read_record(self._out)) is not None:
            run = str(found["run"])
            if run == self._job.run:
                return decode(TrainReport, found["report"], f"{self._out / TRAINING}: report")
            raise ValueError(
                f"{self.spec.out} holds an encoder of another run ({run[:12]}; this one is "
                f"{self._job.run[:12]}); choose another --out, or remove it"
            )
        if self._out.exists() and any(self._out.iterdir()):
            raise ValueError(
                f"out {self.spec.out} is not empty and holds no {TRAINING}; choose another --out"
            )
        return None

    def find_published(self, out: Writer) -> TrainReport | None:
        known = self.find_finished()  # another run may have finished it while this one waited
        if known is not None:
            shutil.rmtree(self._work)
        return known

    def work(self, out: Writer, timer: StageTimer) -> TrainReport:
        with job_session(self.place, self.address):
            num_workers, checkpoint = fit(self.spec, self._job, self._work)
        result = self._work / "result"
        report = write_result(self.spec, self._job, checkpoint, num_workers, result)
        self._out.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._out.rmdir()
        result.rename(self._out)
        shutil.rmtree(self._work)
        return report

    def report(self, published: TrainReport, *, is_new: bool, seconds: float) -> TrainReport:
        return replace(published, is_new=is_new)


def _read_record(out: Path) -> dict[str, object] | None:
    """What `training.json` states; None where there is none."""
    path = out / TRAINING
    if not path.is_file():
        return None
    return decode(dict[str, object], json.loads(path.read_text(encoding="utf-8")), str(path))
