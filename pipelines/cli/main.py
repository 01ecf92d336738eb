"""The `sbert` command: words -> specs, reports -> sentences.

Every command is made from the spec of its stage and a function that renders the report. Jobs and
their libraries load when one runs, so that `--help` is instant.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, TypeVar, cast

import click

from pipelines import STAGES
from pipelines.apply.spec import ApplySpec
from pipelines.cli import render, render_hits, render_run
from pipelines.cli.parameters import common_parameters, spec_parameters
from pipelines.cli.rendered import Rendered
from pipelines.cli.run_job import run_job
from pipelines.cluster.spec import ClusterSpec
from pipelines.dedup.spec import DedupSpec
from pipelines.demo.spec import DemoSpec
from pipelines.doctor.spec import DoctorSpec
from pipelines.embed.spec import EmbedSpec
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.export.spec import ExportSpec
from pipelines.index.spec import IndexSpec
from pipelines.init.spec import InitSpec
from pipelines.mine.spec import MineSpec
from pipelines.options import Spec
from pipelines.pairs.spec import PairsSpec
from pipelines.path.spec import PathSpec
from pipelines.prepare.spec import PrepareSpec
from pipelines.purge.spec import PurgeSpec
from pipelines.report.spec import ReportSpec
from pipelines.run.spec import RunSpec
from pipelines.runtime.terminal import printable
from pipelines.search.spec import SearchSpec
from pipelines.submit.spec import SubmitSpec
from pipelines.threshold.spec import ThresholdSpec
from pipelines.train.spec import TrainSpec

Report = TypeVar("Report")


class Flow(click.Group):
    """Lists commands in the order of the flow; click sorts them by letter."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [stage for stage in STAGES if stage in self.commands]

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        with _errors_made_printable():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        with _errors_made_printable():
            return super().invoke(ctx)


@contextmanager
def _errors_made_printable() -> Iterator[None]:
    """Escape control characters: a shell may expand names of a corpus's files into arguments."""
    try:
        yield
    except click.UsageError as error:
        message = error.format_message()
        if printable(message) == message:
            raise
        raise click.UsageError(printable(message), error.ctx) from None


@click.group(cls=Flow)
@click.version_option(package_name="sbert-mill")
def main() -> None:
    """Sentence vectors for whole corpora: embed, index, find and remove near-duplicates.

    Every command runs on an embedded Ray unless --address (or RAY_ADDRESS) names a cluster.
    """


class Callback(Protocol):
    """What runs when a command is called, with its parameters by name."""

    def __call__(
        self,
        *,
        debug: bool,
        json_log: bool,
        as_json: bool = False,
        max_wait: float | None = None,
        when_busy: str | None = None,
        **options: object,
    ) -> None: ...


class StageCommand(click.Command):
    """The command of one stage. spec_type: its options; waits, has_json: its switches."""

    def __init__(
        self,
        stage: str,
        spec_type: type[Spec],
        callback: Callback,
        *,
        waits: bool,
        has_json: bool,
    ) -> None:
        self.spec_type = spec_type
        switches = common_parameters(waits=waits, has_json=has_json)
        params = spec_parameters(spec_type)
        super().__init__(stage, callback=callback, params=params + switches, help=spec_type.__doc__)


def add_command(
    stage: str,
    spec_type: type[Spec],
    render_report: Callable[[Report], str | Rendered],
    *,
    render_json: Callable[[Report], str | Rendered] | None = None,
    waits: bool = False,
    prepare: Callable[[dict[str, object], Sequence[str]], None] | None = None,
) -> None:
    """Add a stage to the command line.

    render_report, render_json: make text of its report. waits: the stage may wait for capacity or
    for another run. prepare: changes the options before the spec is made; it gets the log switches.
    """

    def callback(
        *,
        debug: bool,
        json_log: bool,
        as_json: bool = False,
        max_wait: float | None = None,
        when_busy: str | None = None,
        **options: object,
    ) -> None:
        if prepare is not None:
            prepare(options, ["--debug"] * debug + ["--json-log"] * json_log)
        with _waiting(max_wait, when_busy):
            report = cast(Report, run_job(stage, spec_type, options, debug, json_log))
        if as_json and render_json is not None:
            show(render_json(report))
        else:
            show(render_report(report))

    main.add_command(
        StageCommand(stage, spec_type, callback, waits=waits, has_json=render_json is not None)
    )


def _waiting(max_wait: float | None, when_busy: str | None) -> AbstractContextManager[None]:
    if max_wait is None:
        return nullcontext()
    from pipelines.runtime.wait_policy import wait_policy

    return wait_policy(max_wait, waits_for_lock=when_busy == "wait")


def show(result: str | Rendered) -> None:
    """Print a rendered report; exit with its code if it has one."""
    shown = Rendered(result) if isinstance(result, str) else result
    click.echo(shown.text if shown.is_coloured else printable(shown.text), err=shown.is_error)
    for note in shown.notes:
        click.echo(printable(note), err=True)
    if shown.exit_code:
        sys.exit(shown.exit_code)


def check_run_words(options: dict[str, object], switches: Sequence[str]) -> None:
    """Refuse wrong options of `sbert run` here, not on the cluster; pass the log switches on."""
    words = cast("tuple[str, ...]", options["words"])
    main.commands["run"].make_context("run", [str(options["job"]), *words])
    options["words"] = (*switches, *words)


add_command("init", InitSpec, render_run.render_init)
add_command("run", RunSpec, render_run.render_run, waits=True)
add_command("dedup", DedupSpec, render_run.render_dedup, waits=True)
add_command("prepare", PrepareSpec, render.render_prepare, waits=True)
add_command("mine", MineSpec, render.render_mine, waits=True)
add_command("train", TrainSpec, render.render_train, waits=True)
add_command("evaluate", EvaluateSpec, render.render_evaluate, waits=True)
add_command("embed", EmbedSpec, render.render_embed, waits=True)
add_command("index", IndexSpec, render.render_index, waits=True)
add_command(
    "search",
    SearchSpec,
    render_hits.render_search,
    render_json=render_hits.search_json,
    waits=True,
)
add_command(
    "threshold",
    ThresholdSpec,
    render_hits.render_threshold,
    render_json=render_hits.threshold_json,
)
add_command("pairs", PairsSpec, render.render_pairs, waits=True)
add_command("cluster", ClusterSpec, render.render_cluster, waits=True)
add_command("apply", ApplySpec, render.render_apply, waits=True)
add_command("report", ReportSpec, render_run.render_report)
add_command("path", PathSpec, str, waits=True)
add_command("export", ExportSpec, render.render_export)
add_command("purge", PurgeSpec, render_run.render_purge, waits=True)
add_command("demo", DemoSpec, render_run.render_demo, waits=True)
add_command("submit", SubmitSpec, render_run.render_submit, prepare=check_run_words)
add_command(
    "doctor",
    DoctorSpec,
    render_run.render_doctor,
    render_json=render_run.doctor_json,
)
