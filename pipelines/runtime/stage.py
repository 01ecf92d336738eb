"""The life of a job that brings one output up to date, the same for all of them.

    identity -> claim (or wait) -> up to date? -> known failure? -> Ray -> work -> publish -> report

A job states what is its own: what it hashes, what makes an output current, the work, the report.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from pipelines.artifacts.kinds import Inputs, Kind, Metrics, Settings
from pipelines.artifacts.manifest import Manifest
from pipelines.artifacts.writer import Writer
from pipelines.runtime.failure_cache import replay_or_record
from pipelines.runtime.readable import ReadableReport
from pipelines.runtime.session import job_session
from pipelines.runtime.timing import StageTimer
from pipelines.runtime.wait_policy import lock_when_free
from workers.common.memory import peak_private_bytes

Published = TypeVar("Published")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport(ReadableReport):
    """What every report states. is_new: False where there was nothing to do."""

    out: str
    is_new: bool = True
    seconds: float = 0.0


Report = TypeVar("Report", bound=StageReport, covariant=True)


class OutputSpec(Protocol):
    """Options of a job that has an output."""

    @property
    def out(self) -> object: ...


class Stage(ABC, Generic[Published, Report]):
    """A job on one output. Published: what readers see of it, such as a manifest."""

    uses_ray: ClassVar[bool] = True
    address: str | None = None  # of the Ray cluster; None for an embedded Ray

    @property
    @abstractmethod
    def spec(self) -> OutputSpec:
        """The job's options."""

    @property
    def place(self) -> str:
        """The folder or URI that one run at a time may write to."""
        return str(self.spec.out)

    def find_finished(self) -> Published | None:
        """A result that can be seen without holding the output."""
        return None

    @abstractmethod
    def find_published(self, out: Writer) -> Published | None:
        """The published result, if it is what this job would make; refuses a foreign output."""

    @abstractmethod
    def work(self, out: Writer, timer: StageTimer) -> Published:
        """Make the result and publish it."""

    @abstractmethod
    def report(self, published: Published, *, is_new: bool, seconds: float) -> Report:
        """What the command line shows and `sbert run` notes."""

    def failures(self, out: Writer) -> AbstractContextManager[None]:
        """Where failures that a rerun would repeat are kept."""
        return contextlib.nullcontext()


def run_stage(stage: Stage[Published, Report], timer: StageTimer | None = None) -> Report:
    """Bring the output of a stage up to date.

    timer: started before the stage was made, where making it takes time. BusyError if another run
    holds the output and the wait policy does not cover it.
    """
    timer = timer or StageTimer()
    if (known := stage.find_finished()) is not None:
        return stage.report(known, is_new=False, seconds=0.0)
    with Writer.claim(stage.place, lock_when_free) as out:
        if (known := stage.find_published(out)) is not None:
            return stage.report(known, is_new=False, seconds=0.0)
        session = (
            job_session(stage.place, stage.address) if stage.uses_ray else contextlib.nullcontext()
        )
        with stage.failures(out), session:
            published = stage.work(out, timer)
        return stage.report(published, is_new=True, seconds=timer.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made(Generic[Settings, Inputs, Metrics]):
    """A generation that is written but not published.

    rows_in: rows of the input, counted where they were read. rows_out: rows that have a result,
    counted apart, in the written files; the manifest's rows where it is None. run: for `_run.json`,
    beside times and memory.
    """

    manifest: Manifest[Settings, Inputs, Metrics]
    rows_in: int
    rows_out: int | None = None
    run: Mapping[str, object] | None = None


class ArtifactStage(
    Stage[Manifest[Settings, Inputs, Metrics], Report],
    Generic[Settings, Inputs, Metrics, Report],
):
    """A job whose result is an artifact with a manifest."""

    @property
    @abstractmethod
    def kind(self) -> Kind[Settings, Inputs, Metrics]:
        """The kind of artifact it makes."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Digest of inputs and options: an equal one means an equal artifact."""

    def is_current(self, manifest: Manifest[Settings, Inputs, Metrics]) -> bool:
        """Is the published artifact the one this job would make?"""
        return manifest.generation == self.identity

    def refuse(self, out: Writer) -> None:
        """Raise where this job may not write to the output; its kind is checked already."""

    @abstractmethod
    def make(self, out: Writer, timer: StageTimer) -> Made[Settings, Inputs, Metrics]:
        """Write a new generation; everything but publishing."""

    def finish(self, out: Writer, manifest: Manifest[Settings, Inputs, Metrics]) -> None:
        """Remove what the published generation makes obsolete."""

    def find_published(self, out: Writer) -> Manifest[Settings, Inputs, Metrics] | None:
        current = out.current_of(self.kind)
        if current is not None and self.is_current(current):
            out.tidy_after_kill()
            return current
        self.refuse(out)
        return None

    def work(self, out: Writer, timer: StageTimer) -> Manifest[Settings, Inputs, Metrics]:
        made = self.make(out, timer)
        run = made.run or {
            "phases": timer.phases,
            "seconds": timer.seconds,
            "private_bytes": {"driver": peak_private_bytes()},
        }
        manifest = made.manifest
        rows_out = manifest.rows if made.rows_out is None else made.rows_out
        out.publish(manifest, rows_in=made.rows_in, rows_out=rows_out, run=run)
        self.finish(out, manifest)
        return manifest

    def failures(self, out: Writer) -> AbstractContextManager[None]:
        return replay_or_record(out, self.spec, self.identity)
