"""A job file -> its stages, one after the other, and one report.

In:  a job file.
Out: the artifacts of its stages below `out`, `run.json` for monitors, the report. A stage whose
     inputs and options made its output has nothing to do; an edit reruns what depends on it.
"""

import contextlib
import json
import logging
import time
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipelines.artifacts.errors import GateFailed
from pipelines.artifacts.sidecars import RUN_RECORD, SCORES, GateRecord, RunRecord, read_sidecar
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.run.gates import Gate, measure_gates
from pipelines.run.jobfile import JobFile
from pipelines.run.spec import RunSpec
from pipelines.runtime.logs import log_stage, run_id
from pipelines.runtime.progress import show_stages
from pipelines.runtime.readable import ReadableReport
from pipelines.runtime.session import shared_session
from sbert_core.choices import Precision
from sbert_core.digest import digest, file_digest, folder_digest
from sbert_core.storage import storage_at
from workers.common.memory import private_bytes

if TYPE_CHECKING:
    from pipelines.run.estimate import JobPlan

log = logging.getLogger(__name__)


class StageOutcome(Protocol):
    """A report of any stage. is_new: False where there was nothing to do."""

    @property
    def is_new(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """What became of a stage. outcome: done, nothing to do, passed over or held back.

    said: numbers and words of its report. driver_bytes: private memory of this process when the
    stage was over.
    """

    name: str
    outcome: str
    seconds: float = 0.0
    said: dict[str, str | int | float | bool | None]
    driver_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport(ReadableReport):
    """A finished run; `plan` holds the estimates of one that was only planned."""

    out: str
    stages: tuple[StageRun, ...]
    gates: tuple[Gate, ...]
    page: str | None
    seconds: float
    plan: "JobPlan | None" = None


def run(spec: RunSpec) -> RunReport:
    """Run the stages of a job file, or estimate what they would take."""
    path = spec.job.absolute()
    with contextlib.chdir(path.parent if path.parent.is_dir() else Path.cwd()):
        # Paths in a job file are relative to it, wherever the scheduler starts the command.
        job = JobFile.read(Path(path.name), spec.settings, spec.address)
        if spec.start is not None and spec.start not in job.stages:
            raise ValueError(f"--from {spec.start}: the job's stages are {', '.join(job.stages)}")
        here = path.parent if spec.job.is_absolute() else spec.job.parent
        if spec.plan:
            plan = import_module("pipelines.run.estimate").estimate_run(job)
            return RunReport(out=job.out, stages=(), gates=(), page=None, seconds=0.0, plan=plan)
        return Run(job, spec.start, here).run_stages()


class Run:
    """One run of a job. start: the first stage to run. here: the job's folder as the user sees it.

    previous: what the last run noted in `run.json`.
    """

    def __init__(self, job: JobFile, start: str | None, here: Path) -> None:
        self.job = job
        self.here = here
        self.first_stage = start
        self.start = time.time()
        self.stages: list[StageRun] = []
        self.reports: dict[str, StageOutcome] = {}
        self.gates: list[Gate] = []
        self.storage = storage_at(job.out)
        is_known = self.storage.stat(RUN_RECORD) is not None
        self.previous = read_sidecar(self.storage, RUN_RECORD, RunRecord) if is_known else None
        self.evaluated = self.previous.evaluated if self.previous else None

    def run_stages(self) -> RunReport:
        """Run what is due; GateFailed, after everything is written, if a gate is not met."""
        names = list(self.job.stages)
        first = names.index(self.first_stage) if self.first_stage else 0
        page = None
        with shared_session(self.job.out), show_stages(names) as shown:
            for number, name in enumerate(names):
                if name == "report":
                    continue
                if number < first:
                    self._note(StageRun(name=name, outcome="passed over", said={}))
                elif name == "apply" and self._is_gate_shut():
                    self._note(StageRun(name=name, outcome="held back", said={}))
                else:
                    with shown(name), log_stage(name):
                        self._run_stage(name)
            self.gates = self._measure_gates()
            self._write()
            if "report" in self.job.stages:
                with shown("report"):
                    page = self._from_here(self._write_page())
        self._refuse_failed_gates(page)
        return RunReport(
            out=self._from_here(self.job.out),
            stages=tuple(self.stages),
            gates=tuple(self.gates),
            page=page,
            seconds=time.time() - self.start,
        )

    def _run_stage(self, name: str) -> None:
        """Run a stage and note its outcome."""
        spec = self.job.stages[name]
        log.info("stage %s", name)
        start = time.perf_counter()
        report = self._find_scores(spec) if isinstance(spec, EvaluateSpec) else None
        if report is None:
            made = import_module(f"pipelines.{name}.job").run(spec)
            report = made[0] if isinstance(made, list) else made  # one training for each seed
        self.reports[name] = report
        self._note(
            StageRun(
                name=name,
                outcome="done" if report.is_new else "nothing to do",
                seconds=time.perf_counter() - start,
                said=_scalars(report),
                driver_bytes=private_bytes(),
            )
        )

    def _find_scores(self, spec: EvaluateSpec) -> StageOutcome | None:
        """The scores of the last run, if models and benchmark files are the same."""
        known, self.evaluated = self.evaluated, _fingerprint(spec)
        if known != self.evaluated or spec.out is None or not (spec.out / SCORES).exists():
            return None
        report: StageOutcome = import_module("pipelines.evaluate.job").reread(spec)
        return report

    def _write_page(self) -> str:
        """The report of the run; the path of its page."""
        log.info("stage report")
        start = time.perf_counter()
        made = import_module("pipelines.report.job").run(self.job.stages["report"])
        seconds = time.perf_counter() - start
        self._note(
            StageRun(
                name="report",
                outcome="done",
                seconds=seconds,
                said=_scalars(made),
                driver_bytes=private_bytes(),
            )
        )
        page: str = made.page
        return page

    def _refuse_failed_gates(self, page: str | None) -> None:
        failed = [gate for gate in self.gates if not gate.is_met]
        if not failed:
            return
        is_held = any(stage.outcome == "held back" for stage in self.stages)
        held = "apply was held back. " if is_held else ""
        raise GateFailed(
            f"{'; '.join(str(gate) for gate in failed)}. {held}The artifacts are in "
            f"{self._from_here(self.job.out)}" + (f", the report is {page}" if page else "")
        )

    def _from_here(self, place: str) -> str:
        """A place below the job's folder, from where the command was given."""
        return place if "://" in place else str(self.here / place)

    def _measure_gates(self) -> list[Gate]:
        """Measured now; for stages that were passed over, as the run before measured them."""
        found = measure_gates(self.job.gates, self.reports)
        if self.first_stage is None or self.previous is None:
            return found
        known = {gate.name: gate.value for gate in self.previous.gates}
        return [
            replace(gate, value=known.get(gate.name)) if gate.value is None else gate
            for gate in found
        ]

    def _is_gate_shut(self) -> bool:
        """Every gate judges a stage before apply, which takes rows out of what others read."""
        return not all(gate.is_met for gate in self._measure_gates())

    def _note(self, stage: StageRun) -> None:
        self.stages.append(stage)
        self._write()

    def _write(self) -> None:
        """Write `run.json`; until gates are measured anew it keeps those of the run before."""
        gates = [GateRecord(**asdict(gate), is_met=gate.is_met) for gate in self.gates]
        if not gates and self.previous is not None:
            gates = list(self.previous.gates)
        facts = {
            "job": str(self.job.path),
            "run": run_id(),
            "started": self.start,
            "seconds": round(time.time() - self.start, 2),
            "stages": [asdict(stage) for stage in self.stages],
            "gates": [asdict(gate) for gate in gates],
            "price_per_hour": self.job.price_per_hour,
            "evaluated": self.evaluated,
        }
        self.storage.put(RUN_RECORD, (json.dumps(facts, indent=1, default=str) + "\n").encode())


def _fingerprint(spec: EvaluateSpec) -> str:
    """Models and files of an evaluation, by their contents."""
    options = asdict(spec)
    options.pop("address")
    if spec.precision is Precision.FLOAT32:
        options.pop("precision")  # evaluations before there was a choice stay valid
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


def _scalars(report: object) -> dict[str, str | int | float | bool | None]:
    """Numbers and words of a report; what is long stays in the artifact."""
    assert is_dataclass(report)
    values = {field.name: getattr(report, field.name) for field in fields(report)}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, str | int | float | bool) or value is None
    }
