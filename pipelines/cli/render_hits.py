"""Hits of a search and samples of pairs -> tables, or JSON."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from pipelines.cli.rendered import Rendered
from pipelines.runtime.terminal import one_line

if TYPE_CHECKING:
    from pipelines.search.job import SearchReport
    from pipelines.threshold.job import Level, ThresholdReport

SNIPPET_CHARS = 80


def render_threshold(report: "ThresholdReport") -> str:
    lines = _threshold_notes(report)
    for level in report.levels:
        lines.append(f"cosine >= {level.cos:g}: {_render_level(level)}")
        for pair in level.samples:
            lines.append(f"  {pair.cos:.4f}  {_snippet(pair.text_a, pair.id_a)}")
            lines.append(f"          {_snippet(pair.text_b, pair.id_b)}")
    if report.best is not None:
        lines.append(
            f"best F1 {report.best.f1:.3f} at {report.best.cos:.4f} (precision "
            f"{report.best.precision:.3f}, recall {report.best.recall:.3f})"
        )
    return "\n".join(lines)


def threshold_json(report: "ThresholdReport") -> str:
    fields = {
        "notes": _threshold_notes(report),
        "levels": [asdict(level) for level in report.levels],
        "best": None if report.best is None else asdict(report.best),
    }
    return json.dumps(fields, ensure_ascii=False, indent=1, default=str)


def _threshold_notes(report: "ThresholdReport") -> list[str]:
    if (chance := report.chance) is None:
        return [f"{report.labelled_pairs:,} labelled pairs"]
    return [
        f"{chance.rows:,} rows drawn at random: the mean cosine of two of them is "
        f"{chance.mean_cos:.3f}",
        f"all rows make {chance.all_pairs:,} pairs; expected numbers are those of the sample, "
        "scaled up",
    ]


def _render_level(level: "Level") -> str:
    if level.f1 is not None:
        return f"precision {level.precision:.3f}, recall {level.recall:.3f}, F1 {level.f1:.3f}"
    found = "" if level.pairs is None else f"{level.pairs:,} pairs found; "
    return (
        f"{found}{level.chance_per_million:,.2f} of a million random pairs, "
        f"about {level.expected:,} in all"
    )


def _snippet(text: str | None, name: object) -> str:
    return one_line(" ".join(f"{name}: {text or ''}".split())[:SNIPPET_CHARS])


def render_search(report: "SearchReport") -> Rendered:
    """A table of hits; notes on texts that could not be read go to stderr."""
    return Rendered(_render_hits(report), notes=report.notes)


def _render_hits(report: "SearchReport") -> str:
    if report.out is not None:
        return f"hits of {report.num_queries:,} queries -> {report.out}"
    if not report.hits:
        return "nothing found"
    ids = [one_line(hit.id) for hit in report.hits]
    width = max(map(len, ids))
    has_rerank = report.hits[0].rerank is not None
    lines = [f"rank  cosine  {'rerank  ' * has_rerank}{'id':<{width}}  text"]
    for name, hit in zip(ids, report.hits, strict=True):
        rerank = f"{hit.rerank:6.4f}  " if hit.rerank is not None else ""
        text = "" if hit.text is None else _shorten(hit.text)
        lines.append(f"{hit.rank:4}  {hit.cos:6.4f}  {rerank}{name:<{width}}  {text}".rstrip())
    return "\n".join(lines)


def search_json(report: "SearchReport") -> Rendered:
    if report.out is not None:
        text = json.dumps({"queries": report.num_queries, "out": report.out})
        return Rendered(text, notes=report.notes)
    hits = [{k: v for k, v in asdict(hit).items() if v is not None} for hit in report.hits]
    text = json.dumps(hits, indent=1, ensure_ascii=False, default=str)
    return Rendered(text, notes=report.notes)


def _shorten(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return one_line(line if len(line) <= SNIPPET_CHARS else f"{line[:SNIPPET_CHARS]}...")
