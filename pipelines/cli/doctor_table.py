"""A doctor's report -> a table to read."""

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipelines.doctor.verdicts import Verdict
from pipelines.runtime.terminal import printable

if TYPE_CHECKING:
    from pipelines.doctor.job import DoctorReport

PLAIN_WIDTH = 120  # of output that does not go to a terminal
COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


def doctor_text(report: "DoctorReport") -> str:
    """A table of all checks, in colours on a terminal, and the number of failures."""
    terminal = Console()
    width = terminal.width if terminal.is_terminal else PLAIN_WIDTH
    table = Table("check", "found", "verdict", "remedy", box=None, pad_edge=False)
    for row in report.checks:
        colour = COLOURS[row.verdict]
        check, found, remedy = (escape(printable(v)) for v in (row.check, row.found, row.remedy))
        table.add_row(check, found, f"[{colour}]{row.verdict}[/]", remedy)
    page = StringIO()
    console = Console(file=page, width=width, force_terminal=terminal.is_terminal)
    console.print(table, markup=True)
    lines = [line.rstrip() for line in page.getvalue().splitlines()]
    lines.append(f"{report.num_failed} failed, {report.num_warned} warnings")
    if report.gpu_file is not None:
        lines.append(f"GPU report -> {printable(str(report.gpu_file))}")
    return "\n".join(lines)
