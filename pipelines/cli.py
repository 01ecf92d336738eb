"""Words -> specs, artifacts -> words. Jobs and their libraries load when one runs."""

import os
import signal
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
    from pipelines.embedding.estimate import EmbedEstimate
    from pipelines.embedding.summary import EmbedReport

EXIT_UNEXPECTED = 1
EXIT_BAD_INPUT = 2
EXIT_PARTIAL = 3
EXIT_BUSY = 5
# Errors that have an exit code of their own, by name: their modules load with the job.
EXIT_BY_NAME = {"PartialWork": EXIT_PARTIAL, "BusyError": EXIT_BUSY}
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
    signal.signal(signal.SIGTERM, _interrupted)  # as Ctrl-C: preempted jobs save what they have
    try:
        spec = getattr(import_module("pipelines.specs"), spec_name)(**options)
        return import_module(f"pipelines.{stage}").run(spec)
    except (ValueError, FileNotFoundError, PermissionError) as error:
        _fail(f"error: {error}", EXIT_BAD_INPUT, debug)
    except KeyboardInterrupt:
        _fail("stopped before anything was saved", EXIT_PARTIAL, debug)
    except Exception as error:  # noqa: BLE001 - the last line of defence; nothing is swallowed
        reason = str(error).strip().splitlines()
        name = type(error).__name__
        if (code := EXIT_BY_NAME.get(name)) is not None:
            _fail(f"error: {error}", code, debug)
        _fail(f"unexpected {name}: {reason[-1] if reason else name}", EXIT_UNEXPECTED, debug)


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _fail(message: str, code: int, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    click.echo(message + ("" if debug else "  (--debug shows where)"), err=True)
    sys.exit(code)


@main.command()
@click.argument("corpus")
@click.option("--model", required=True, help="Folder, s3:// URI, hub id org/name@rev, or 'demo'.")
@click.option("--out", required=True, help="Folder or s3:// URI of the vectors, new or to update.")
@click.option("--text-column", default="text", show_default=True, help="Column of texts.")
@click.option("--text", help=r"Template of several columns instead: '{title}\n{body}'.")
@click.option("--id-column", help="Column of unique ids; 'id' if there is one, else positions.")
@click.option("--id", type=click.Choice(["content"]), help="Make ids from the texts themselves.")
@click.option("--carry", default="", help="Columns to copy beside the vectors: a,b.")
@click.option("--where", help="Rows to take: \"lang == 'en' and year >= 2020\".")
@click.option("--limit", type=int, help="Take the first N rows only.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16", "int8"]),
    default="float32",
    show_default=True,
    help="How vectors are stored.",
)
@click.option("--max-length", type=int, help="Tokens of a text the model sees; the model's own.")
@click.option("--prompt", help="Text in front of every text; the model's document prompt.")
@click.option("--truncate-dim", type=int, help="Keep the first D dimensions.")
@click.option(
    "--long",
    type=click.Choice(["truncate", "pool", "chunks"]),
    default="truncate",
    show_default=True,
    help="Texts beyond the length: cut, average their windows, or one row per window.",
)
@click.option(
    "--distinct",
    type=click.Choice(["corpus", "unit"]),
    default="corpus",
    show_default=True,
    help="Encode each text once in the whole corpus, or once per unit (fewer passes).",
)
@click.option("--actors", type=int, help="Embedding actors; one per GPU, or per core.")
@click.option("--gpus-per-actor", type=float, help="1 where there are GPUs, else 0.")
@click.option("--cpus-per-actor", type=int, default=1, show_default=True)
@click.option("--unit-rows", type=int, help="Rows per unit of work; 1,024 to 65,536 by file size.")
@click.option("--skip-corrupt", is_flag=True, help="Quarantine unreadable files and go on.")
@click.option("--plan", is_flag=True, help="Show what would be done; write nothing.")
@job
def embed(debug: bool, json_log: bool, carry: str, text: str | None, **options: object) -> None:
    """Turn a corpus of texts into vectors; only what is new or changed is embedded."""
    options["carry"] = tuple(name.strip() for name in carry.split(",") if name.strip())
    options["text"] = None if text is None else _unescaped(text)
    report = run_job("embed", "EmbedSpec", debug, json_log, **options)
    click.echo(_plan_text(report) if options["plan"] else _embed_text(report))


def _unescaped(template: str) -> str:
    r"""A shell's '\n' and '\t' as the characters they mean."""
    return template.replace(r"\n", "\n").replace(r"\t", "\t")


def _embed_text(report: "EmbedReport") -> str:
    if not report.seconds:
        return f"nothing to do, {report.rows:,} vectors -> {report.folder}"
    saved = f"{report.reused:,} carried over, {report.repeats:,} repeats"
    speed = f"{report.tokens:,} tokens at {report.tokens_per_second:,.0f}/s, " * bool(report.tokens)
    return (
        f"{report.embedded:,} embedded, {saved}, {report.quarantined:,} quarantined, "
        f"{report.truncated:,} truncated; {speed}{report.seconds:.1f} s in all\n"
        f"{report.rows:,} vectors -> {report.folder}"
    )


def _plan_text(plan: "EmbedEstimate") -> str:
    low, high = plan.seconds
    return (
        f"rows       {plan.rows:,} in {plan.units:,} units of {plan.files:,} files\n"
        f"texts      {plan.distinct:,} distinct, {plan.reused:,} carried over, "
        f"{plan.to_embed:,} to embed\n"
        f"tokens     about {plan.tokens:,} to embed\n"
        f"duration   {low:,.0f} to {high:,.0f} s on {plan.actors} actors like this machine's\n"
        f"output     about {plan.bytes_out:,} bytes\n"
        "nothing was written"
    )


@main.command()
@click.argument("artifact")
def path(artifact: str) -> None:
    """Print the published data folder of an artifact, for any Parquet reader."""
    click.echo(run_job("path", "PathSpec", False, False, artifact=artifact))


@main.command()
@click.argument("vectors")
@click.option("--to", type=click.Choice(["lance", "pgvector", "qdrant"]), required=True)
@click.option("--out", required=True, help="New folder for the files.")
@click.option("--name", default="vectors", show_default=True, help="Table or collection.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def export(debug: bool, **options: object) -> None:
    """Write vectors as files a vector store loads."""
    rows, folder = run_job("export", "ExportSpec", debug, False, **options)
    click.echo(f"{rows:,} vectors -> {folder}")


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
