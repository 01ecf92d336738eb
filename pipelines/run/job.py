"""A job file -> its stages, one after the other, and one report.

In:  a job file.
Out: the artifacts of its stages below `out`, `run.json` for monitors, the report. A stage whose
     inputs and options made its output has nothing to do; an edit reruns what depends on it.
"""

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from pipelines.artifacts.errors import GateFailed
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.run.gates import Gate, gates_of
from pipelines.run.jobfile import JobFile
from pipelines.run.spec import RunSpec
from pipelines.runtime.logs import run_id, stage_named
from pipelines.runtime.progress import stages_shown
from pipelines.runtime.session import shared_session
from sbert_core.digest import digest, file_digest, folder_digest
from sbert_core.storage import storage_at
from workers.common.memory import private_bytes

log = logging.getLogger(__name__)

RUN = "run.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """What became of a stage. outcome: done, nothing to do, passed over or held back.

    driver_bytes: private memory of this process when the stage was over.
    """

    name: str
    outcome: str
    seconds: float
    said: dict[str, Any]
    driver_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A finished run; `plan` holds the estimates of one that was only planned."""

    out: str
    stages: tuple[StageRun, ...]
    gates: tuple[Gate, ...]
    page: str | None
    seconds: float
    plan: Any = None


def run(spec: RunSpec) -> RunReport:
    path = spec.job.absolute()
    with contextlib.chdir(path.parent if path.parent.is_dir() else Path.cwd()):
        # Paths in a job file are relative to it, wherever the scheduler starts the command.
        job = JobFile.read(Path(path.name), spec.settings, spec.address)
        if spec.start is not None and spec.start not in job.stages:
            raise ValueError(f"--from {spec.start}: the job's stages are {', '.join(job.stages)}")
        here = path.parent if spec.job.is_absolute() else spec.job.parent
        if spec.plan:
            planned = import_module("pipelines.run.estimate").run(job)
            return RunReport(out=job.out, stages=(), gates=(), page=None, seconds=0.0, plan=planned)
        return Run(job, spec.start, here).carried_out()


class Run:
    """One run of a job."""

    def __init__(self, job: JobFile, start: str | None, here: Path) -> None:
        self.job = job
        self.here = here  # the job's folder as the user sees it
        self.start = start
        self.began = time.time()
        self.stages: list[StageRun] = []
        self.reports: dict[str, Any] = {}
        self.gates: list[Gate] = []
        self.storage = storage_at(job.out)
        known = self.storage.stat(RUN) is not None
        self.before = json.loads(self.storage.read(RUN)) if known else {}

    def carried_out(self) -> RunReport:
        names = list(self.job.stages)
        first = names.index(self.start) if self.start else 0
        with shared_session(self.job.out), stages_shown(names) as shown:
            for number, name in enumerate(names):
                if name == "report":
                    continue
                if number < first:
                    self._note(StageRun(name=name, outcome="passed over", seconds=0.0, said={}))
                    continue
                if name == "apply" and self._is_gate_shut():
                    self._note(StageRun(name=name, outcome="held back", seconds=0.0, said={}))
                    continue
                with shown(name), stage_named(name):
                    self._stage(name)
            self.gates = self._gates()
            self._write()
            page = None
            if "report" in self.job.stages:
                with shown("report"):
                    page = self._seen(self._stage("report").page)
        failed = [gate for gate in self.gates if not gate.is_met]
        if failed:
            is_held = any(stage.outcome == "held back" for stage in self.stages)
            held = "apply was held back. " if is_held else ""
            raise GateFailed(
                f"{'; '.join(str(gate) for gate in failed)}. {held}The artifacts are in "
                f"{self._seen(self.job.out)}" + (f", the report is {page}" if page else "")
            )
        return RunReport(
            out=self._seen(self.job.out),
            stages=tuple(self.stages),
            gates=tuple(self.gates),
            page=page,
            seconds=time.time() - self.began,
        )

    def _stage(self, name: str) -> Any:  # noqa: ANN401
        spec = self.job.stages[name]
        log.info("stage %s", name)
        began = time.perf_counter()
        fingerprint = _fingerprint(spec) if name == "evaluate" else None
        known = self.before.get("evaluated")
        if fingerprint is not None and known == fingerprint and (spec.out / "scores.json").exists():
            report = import_module("pipelines.evaluate.job").reread(spec)
            is_new = False
        else:
            report = import_module(f"pipelines.{name}.job").run(spec)
            if isinstance(report, list):  # of a training with several seeds
                report = report[0]
            is_new = getattr(report, "is_new", bool(getattr(report, "seconds", 1.0)))
        self.reports[name] = report
        seconds = time.perf_counter() - began
        outcome = "done" if is_new else "nothing to do"
        self._note(
            StageRun(
                name=name,
                outcome=outcome,
                seconds=seconds,
                said=_said(report),
                driver_bytes=private_bytes(),
            )
        )
        if fingerprint is not None:
            self.before["evaluated"] = fingerprint
        return report

    def _seen(self, place: str) -> str:
        """A place below the job's folder, from where the command was given."""
        return place if "://" in place else str(self.here / place)

    def _gates(self) -> list[Gate]:
        """Measured now; for stages that were passed over, as the run before measured them."""
        known = {gate["name"]: gate["value"] for gate in self.before.get("gates", [])}
        found = gates_of(self.job.gates, self.reports)
        if self.start is None:
            return found
        return [
            replace(gate, value=known.get(gate.name)) if gate.value is None else gate
            for gate in found
        ]

    def _is_gate_shut(self) -> bool:
        """Every gate judges a stage before apply, which takes rows out of what others read."""
        return not all(gate.is_met for gate in self._gates())

    def _note(self, stage: StageRun) -> None:
        self.stages.append(stage)
        self._write()

    def _write(self) -> None:
        facts = {
            "job": str(self.job.path),
            "run": run_id(),
            "started": self.began,
            "seconds": round(time.time() - self.began, 2),
            "stages": [asdict(stage) for stage in self.stages],
            # Until they are judged anew, those of the run before: --from may need them.
            "gates": [{**asdict(gate), "is_met": gate.is_met} for gate in self.gates]
            or self.before.get("gates", []),
            "price_per_hour": self.job.price_per_hour,
            "evaluated": self.before.get("evaluated"),
        }
        self.storage.put(RUN, (json.dumps(facts, indent=1, default=str) + "\n").encode())


def _fingerprint(spec: EvaluateSpec) -> str:
    """Models and files of an evaluation, by their contents."""
    options = asdict(spec)
    options.pop("address")
    places = [*spec.models]
    for value in options.values():
        places += (
            [item for item in value if isinstance(item, str)] if isinstance(value, tuple) else []
        )
    places += [place for place in (spec.transfer, spec.retrieval) if place]
    contents = {}
    for place in places:
        path = Path(place.partition("=")[2] or place)
        if path.is_dir():
            contents[place] = folder_digest(path)
        elif path.is_file():
            contents[place] = file_digest(path)
    return digest({**json.loads(json.dumps(options, default=str)), "contents": contents})


def _said(report: Any) -> dict[str, Any]:  # noqa: ANN401
    """Counts of a report; what is long stays in the artifact."""
    facts: Mapping[str, Any] = asdict(report)
    return {
        name: value
        for name, value in facts.items()
        if isinstance(value, str | int | float | bool) or value is None
    }
