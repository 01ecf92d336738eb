"""Sections of the report page: ReportFacts -> HTML, empty where there is nothing to show."""

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape

from sbert_core.report.bar_chart import BarSet, bar_chart
from sbert_core.report.facts import Points, ReportFacts, Table
from sbert_core.report.line_chart import Series, line_chart

BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escape_text(value: object) -> str:
    """Text for HTML; characters that turn the direction of writing are shown by their number."""
    return escape(BIDI.sub(lambda mark: f"\u27e8U+{ord(mark[0]):04X}\u27e9", str(value)))


def headline_html(facts: ReportFacts) -> str:
    """The numbers and gates at the top of the page."""
    cards = "".join(
        f'<li><span class="value">{escape_text(card.value)}</span>'
        f'<span class="label">{escape_text(card.label)}</span></li>'
        for card in facts.headline
    )
    gates = "".join(
        f'<li class="{"met" if gate.is_met else "failed"}">'
        f"<b>{'met' if gate.is_met else 'failed'}</b> {escape_text(gate.note)}</li>"
        for gate in facts.gates
    )
    gates = f'<ul class="gates" aria-label="Quality gates">{gates}</ul>' if gates else ""
    return f'<ul class="cards" aria-label="Headline">{cards}</ul>{gates}'


def _lengths(facts: ReportFacts) -> str:
    if (own := facts.lengths) is None:
        return ""
    chart = bar_chart("tokens of a text", own.labels, [BarSet("texts", own.counts)])
    return f'<div class="grid">{_figure(chart, own.note)}{_throughput(facts)}</div>'


def _throughput(facts: ReportFacts) -> str:
    if (own := facts.throughput) is None:
        return ""
    lines = [Series("tokens/s", _xy(own.points))]
    chart = line_chart("tokens per second", "seconds", lines, from_zero=True)
    return _figure(chart, own.note)


def _similarity(facts: ReportFacts) -> str:
    if (own := facts.similarity) is None:
        return ""
    chart = bar_chart(
        "cosines of pairs, counts on a log scale",
        own.labels,
        [BarSet(name, counts) for name, counts in own.sets.items()],
        is_log=True,
        limit=own.limit,
    )
    return f'<div class="grid">{_figure(chart, own.note)}{_threshold_curve(facts)}</div>'


def _threshold_curve(facts: ReportFacts) -> str:
    if not facts.curve:
        return ""
    lines = [
        Series("rows removed", [(point.cos, point.removed) for point in facts.curve]),
        Series("pairs", [(point.cos, point.pairs) for point in facts.curve], is_second=True),
    ]
    chart = line_chart("duplicates by threshold", "cosine", lines)
    return _figure(chart, "rows removed (left), pairs (right)")


def _clusters(facts: ReportFacts) -> str:
    own = facts.clusters
    if not own.items:
        return ""
    chart = bar_chart(
        "clusters by number of rows",
        list(own.sizes),
        [BarSet("clusters", list(own.sizes.values()))],
        is_log=True,
    )
    orders = {"size": "largest first", "lowest": "least alike first", "id": "by id"}
    return (
        f'<div class="grid">{_figure(chart, own.note)}</div>'
        + _tools("clusters", "Search texts and ids", orders)
        + '<div id="clusters-list" aria-live="polite"></div>'
    )


def _map(facts: ReportFacts) -> str:
    own = facts.map
    if not own.points:
        return ""
    legend = "".join(
        f'<li><i data-group="{number}"></i>{escape_text(name)}</li>'
        for number, name in enumerate(own.groups)
    )
    return (
        f'<p class="note">{escape_text(own.note)}</p><div class="tools">'
        '<label class="visually-hidden" for="map-search">Search the map</label>'
        '<input type="search" id="map-search" placeholder="Search the map">'
        '<button id="map-in" aria-label="Zoom in">+</button>'
        '<button id="map-out" aria-label="Zoom out">\u2212</button>'
        '<button id="map-reset">Reset</button><span id="map-count" role="status"></span></div>'
        '<div id="map-box"><canvas id="map" tabindex="0" role="img" aria-label="Map of texts: '
        'arrow keys move, plus and minus zoom"></canvas><div id="tip" hidden></div></div>'
        f'<ul class="legend">{legend}</ul>'
    )


def _quarantine(facts: ReportFacts) -> str:
    own = facts.quarantine
    if not own.items:
        return ""
    return (
        f'<p class="note">{escape_text(own.note)}</p>'
        + _tools("quarantine", "Search ids and reasons", {})
        + '<ul id="quarantine-list" aria-live="polite"></ul>'
    )


def _training(facts: ReportFacts) -> str:
    parts = []
    for own in facts.training:
        lines = [
            Series("loss", _xy(own.loss)),
            Series(own.measure, _xy(own.scores), is_second=True),
        ]
        parts.append(_figure(line_chart(own.name, "step", lines), own.note))
    return f'<div class="grid">{"".join(parts)}</div>' if parts else ""


def _tables(tables: Sequence[Table]) -> str:
    return "".join(_table(table) for table in tables)


def _table(table: Table) -> str:
    def row(cells: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=number' if isinstance(cell, int | float) else ''}>"
            f"{_cell(cell)}</{tag}>"
            for cell in cells
        )

    head = f"<thead><tr>{row(table.columns, 'th')}</tr></thead>"
    rows = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in table.rows)
    note = f'<p class="note">{escape_text(table.note)}</p>' if table.note else ""
    return f'{note}<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div>'


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else escape_text(value)


def _figure(chart: str, note: str) -> str:
    return f"<figure>{chart}<figcaption>{escape_text(note)}</figcaption></figure>"


def _xy(points: Points) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points]


def _tools(prefix: str, hint: str, orders: Mapping[str, str]) -> str:
    """Search field, order and page buttons of a list; the script finds them by prefix."""
    options = "".join(f'<option value="{key}">{name}</option>' for key, name in orders.items())
    sort = (
        f'<label class="visually-hidden" for="{prefix}-sort">Order</label>'
        f'<select id="{prefix}-sort">{options}</select>'
        if orders
        else ""
    )
    return (
        f'<div class="tools"><label class="visually-hidden" for="{prefix}-search">{hint}</label>'
        f'<input type="search" id="{prefix}-search" placeholder="{hint}">{sort}'
        f'<button id="{prefix}-before" aria-label="Page before">\u2190</button>'
        f'<button id="{prefix}-after" aria-label="Next page">\u2192</button>'
        f'<span id="{prefix}-count" role="status"></span></div>'
    )


# Title, id and content of each section, in the order of the page.
SECTIONS: tuple[tuple[str, str, Callable[[ReportFacts], str]], ...] = (
    ("Texts", "texts", _lengths),
    ("Similarity", "similarity", _similarity),
    ("Map", "map-section", _map),
    ("Clusters", "clusters", _clusters),
    ("Training", "training", _training),
    ("Scores", "scores", lambda facts: _tables(facts.scores)),
    ("Index", "index", lambda facts: _tables(facts.index)),
    ("Certificate", "certificate", lambda facts: _tables(facts.certificate)),
    ("Time and memory", "stages", lambda facts: _tables(facts.stages)),
    ("Quarantine", "quarantine", _quarantine),
)
