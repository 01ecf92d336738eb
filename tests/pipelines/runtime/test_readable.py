"""Reports in a Python shell and in a notebook."""

from dataclasses import dataclass

from pipelines.runtime.readable import ReadableReport

HOSTILE = "<script>\x1b[2J</script>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    rank: int
    cos: float
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReport(ReadableReport):
    out: str
    rows: int
    is_new: bool = True
    note: str | None = None
    phases: tuple[tuple[str, float], ...] = ()
    best: Hit | None = None
    hits: tuple[Hit, ...] = ()


def test_report_repr_shows_counts_and_tables_of_records():
    hits = tuple(Hit(rank=n, cos=1 / 3, text=None) for n in range(1, 13))
    text = repr(FoundReport(out="v", rows=12_000, best=hits[0], hits=hits))
    lines = text.splitlines()
    assert lines[:4] == ["FoundReport", "  out     v", "  rows    12,000", "  is_new  True"]
    assert lines[4:7] == ["best", "  rank  1", "  cos   0.3333"]
    assert lines[7:10] == ["hits, first 10 of 12", "  rank  cos", "  1     0.3333"]


def test_report_escapes_texts_for_the_terminal_and_for_html():
    report = FoundReport(out=HOSTILE, rows=1, hits=(Hit(rank=1, cos=1.0, text=HOSTILE),))
    assert "\x1b" not in repr(report) and "\\u001b" in repr(report)
    page = report._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert page.count("<table>") == 2 and "<th>rank</th>" in page


def test_report_is_still_compared_and_hashed_by_its_fields():
    assert FoundReport(out="v", rows=1) == FoundReport(out="v", rows=1)
    assert FoundReport(out="v", rows=1) != FoundReport(out="v", rows=2)
