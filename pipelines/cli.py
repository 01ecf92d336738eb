"""Words -> specs, artifacts -> words. Jobs and their libraries load when one runs."""

import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines import STAGES
from pipelines.logs import configure_logs

if TYPE_CHECKING:
    from pipelines.demo import DemoReport

EXIT_UNEXPECTED = 1
EXIT_BAD_INPUT = 2
SNIPPET_CHARS = 80


class Flow(click.Group):
    """Lists commands in the order of the flow; click sorts them by letter."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [stage for stage in STAGES if stage in self.commands]


@click.group(cls=Flow)
@click.version_option(package_name="sbert-mill")
def main() -> None:
    """Sentence vectors for whole corpora: embed, index, find and remove near-duplicates.

    Every command runs on an embedded Ray unless --address (or RAY_ADDRESS) names a cluster.
    """


def job(command: Callable[..., None]) -> Callable[..., None]:
    """The options every job has."""
    options = (
        click.option("--address", envvar="RAY_ADDRESS", help="Ray cluster; embedded by default."),
        click.option("--debug", is_flag=True, help="Show tracebacks and more log lines."),
        click.option("--json-log", is_flag=True, help="Log lines as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def run_job(stage: str, spec_name: str, debug: bool, json_log: bool, **options: object) -> Any:  # noqa: ANN401
    """Run a stage by name; a failure becomes one line and an exit code."""
    configure_logs(json_log, debug)
    try:
        spec = getattr(import_module("pipelines.specs"), spec_name)(**options)
        return import_module(f"pipelines.{stage}").run(spec)
    except (ValueError, FileNotFoundError, PermissionError) as error:
        _fail(f"error: {error}", EXIT_BAD_INPUT, debug)
    except Exception as error:  # noqa: BLE001 - the last line of defence; nothing is swallowed
        reason = str(error).strip().splitlines()
        name = type(error).__name__
        _fail(f"unexpected {name}: {reason[-1] if reason else name}", EXIT_UNEXPECTED, debug)


def _fail(message: str, code: int, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    click.echo(message + ("" if debug else "  (--debug shows where)"), err=True)
    sys.exit(code)


@main.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Folder for the vectors and the report.",
)
@click.option(
    "--docstrings", type=int, default=4000, show_default=True, help="How many texts to take."
)
@job
def demo(debug: bool, json_log: bool, **options: object) -> None:
    """Embed the docstrings of this machine's Python and show the closest pairs."""
    report: DemoReport = run_job("demo", "DemoSpec", debug, json_log, **options)
    click.echo(_demo_text(report))


def _demo_text(report: "DemoReport") -> str:
    unsorted, by_length = report.padding_shares
    lines = [
        "",
        f"{report.num_rows:,} docstrings, {report.num_distinct:,} distinct, "
        f"{report.num_tokens:,} tokens, {report.num_truncated:,} texts truncated",
        f"throughput       {report.tokens_per_second:,.0f} tokens/s on {report.num_actors} "
        f"actors in {report.seconds:.1f} s",
        f"repeats          {report.num_tokens_saved:,} tokens saved ({report.saved_share:.1%}): "
        "each distinct text is encoded once",
        f"padding avoided  {report.num_padding_unsorted:,} tokens ({unsorted:.0%} of plain "
        f"batches of 32; {by_length:.0%} if those are sorted by length)",
        "",
        f"the {len(report.pairs)} most similar texts that are not the same:",
    ]
    for pair in report.pairs:
        text_a, text_b = _differing_snippets(pair.text_a, pair.text_b)
        lines += [
            f"  {pair.cos:.4f}  {text_a}  [{pair.id_a}]",
            f"          {text_b}  [{pair.id_b}]",
        ]
    return "\n".join([*lines, "", f"report -> {report.path}"])


def _differing_snippets(text_a: str, text_b: str) -> tuple[str, str]:
    """One line of each text around the first place where they differ."""
    line_a, line_b = " ".join(text_a.split()), " ".join(text_b.split())
    num_common = len(os.path.commonprefix([line_a, line_b]))
    start = max(0, num_common - SNIPPET_CHARS // 2)

    def snippet(line: str) -> str:
        end = start + SNIPPET_CHARS
        return f"{'...' * (start > 0)}{line[start:end]}{'...' * (end < len(line))}"

    return snippet(line_a), snippet(line_b)
