"""Facts of a run -> one page that needs no network.

In:  the facts of `report.json`.
Out: HTML with style, script and data inside. Its policy lets nothing else load or run, and every
     text of the corpus is escaped here or set as text by the script.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from sbert_core.report.bar_chart import Bars, bar_chart
from sbert_core.report.line_chart import Series, line_chart

Facts = Mapping[str, Any]
BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
IN_BROWSER = ("clusters", "quarantine", "map")  # what the script reads


def page(facts: Facts) -> str:
    style, script = (_asset(name) for name in ("page.css", "page.js"))
    sections = [(title, name, body) for title, name, make in SECTIONS if (body := make(facts))]
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for title, name, _ in sections)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>'
        f"{inside}</section>"
        for title, name, inside in sections
    )
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    data = {name: facts[name] for name in IN_BROWSER}
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{text_of(facts['title'])}</title><style>{style}</style></head><body><main>"
        f"<header><h1>{text_of(facts['title'])}</h1>"
        f'<p class="note">{text_of(facts["subtitle"])}</p>{_headline(facts)}'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>{body}'
        f"<footer>{''.join(f'<p>{text_of(note)}</p>' for note in facts['notes'])}</footer></main>"
        f'<script type="application/json" id="data">{_json(data)}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def text_of(value: object) -> str:
    """Escaped; characters that turn the direction of writing are shown by their number."""
    return escape(BIDI.sub(lambda mark: f"\u27e8U+{ord(mark[0]):04X}\u27e9", str(value)))


def _json(value: object) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _asset(name: str) -> str:
    return files("sbert_core.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# -- sections --------------------------------------------------------------------------------------


def _headline(facts: Facts) -> str:
    cards = "".join(
        f'<li><span class="value">{text_of(card["value"])}</span>'
        f'<span class="label">{text_of(card["label"])}</span></li>'
        for card in facts["headline"]
    )
    gates = "".join(
        f'<li class="{"met" if gate["is_met"] else "failed"}">'
        f"<b>{'met' if gate['is_met'] else 'failed'}</b> {text_of(gate['said'])}</li>"
        for gate in facts["gates"]
    )
    gates = f'<ul class="gates" aria-label="Quality gates">{gates}</ul>' if gates else ""
    return f'<ul class="cards" aria-label="Headline">{cards}</ul>{gates}'


def _lengths(facts: Facts) -> str:
    own = facts["lengths"]
    if not own:
        return ""
    chart = bar_chart("tokens of a text", own["labels"], [Bars("texts", own["counts"])])
    return f'<div class="grid">{_figure(chart, own["said"])}{_throughput(facts)}</div>'


def _throughput(facts: Facts) -> str:
    own = facts["throughput"]
    if not own:
        return ""
    lines = [Series("tokens/s", own["points"])]
    chart = line_chart("tokens per second", "seconds", lines, from_zero=True)
    return _figure(chart, own["said"])


def _similarity(facts: Facts) -> str:
    own = facts["similarity"]
    if not own:
        return ""
    sets = [Bars(name, counts) for name, counts in own["sets"].items()]
    place = own["limit"]
    chart = bar_chart(
        "cosines of pairs, counts on a log scale", own["labels"], sets, is_log=True, limit=place
    )
    curve = facts["curve"]
    second = ""
    if curve:
        lines = [
            Series("rows removed", [(c["cos"], c["removed"]) for c in curve]),
            Series("pairs", [(c["cos"], c["pairs"]) for c in curve], is_second=True),
        ]
        second = _figure(
            line_chart("duplicates by threshold", "cosine", lines),
            "rows removed (left), pairs (right)",
        )
    return f'<div class="grid">{_figure(chart, own["said"])}{second}</div>'


def _clusters(facts: Facts) -> str:
    own = facts["clusters"]
    if not own["items"]:
        return ""
    chart = bar_chart(
        "clusters by number of rows",
        list(own["sizes"]),
        [Bars("clusters", list(own["sizes"].values()))],
        is_log=True,
    )
    orders = {"size": "largest first", "lowest": "least alike first", "id": "by id"}
    return (
        f'<div class="grid">{_figure(chart, own["said"])}</div>'
        + _tools("clusters", "Search texts and ids", orders)
        + '<div id="clusters-list" aria-live="polite"></div>'
    )


def _map(facts: Facts) -> str:
    own = facts["map"]
    if not own["points"]:
        return ""
    legend = "".join(
        f'<li><i data-group="{number}"></i>{text_of(name)}</li>'
        for number, name in enumerate(own["groups"])
    )
    return (
        f'<p class="note">{text_of(own["said"])}</p><div class="tools">'
        '<label class="visually-hidden" for="map-search">Search the map</label>'
        '<input type="search" id="map-search" placeholder="Search the map">'
        '<button id="map-in" aria-label="Zoom in">+</button>'
        '<button id="map-out" aria-label="Zoom out">\u2212</button>'
        '<button id="map-reset">Reset</button><span id="map-count" role="status"></span></div>'
        '<div id="map-box"><canvas id="map" tabindex="0" role="img" aria-label="Map of texts: '
        'arrow keys move, plus and minus zoom"></canvas><div id="tip" hidden></div></div>'
        f'<ul class="legend">{legend}</ul>'
    )


def _quarantine(facts: Facts) -> str:
    own = facts["quarantine"]
    if not own["items"]:
        return ""
    return (
        f'<p class="note">{text_of(own["said"])}</p>'
        + _tools("quarantine", "Search ids and reasons", {})
        + '<ul id="quarantine-list" aria-live="polite"></ul>'
    )


def _training(facts: Facts) -> str:
    parts = []
    for own in facts["training"]:
        lines = [
            Series("loss", own["loss"]),
            Series(own["measure"], own["scores"], is_second=True),
        ]
        parts.append(_figure(line_chart(own["name"], "step", lines), own["said"]))
    return f'<div class="grid">{"".join(parts)}</div>' if parts else ""


def _tables(name: str) -> Callable[[Facts], str]:
    def make(facts: Facts) -> str:
        return "".join(_table(table) for table in facts[name])

    return make


def _table(table: Facts) -> str:
    def row(cells: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=number' if isinstance(cell, int | float) else ''}>"
            f"{_cell(cell)}</{tag}>"
            for cell in cells
        )

    head = f"<thead><tr>{row(table['columns'], 'th')}</tr></thead>"
    rows = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in table["rows"])
    note = f'<p class="note">{text_of(table["said"])}</p>' if table.get("said") else ""
    return f'{note}<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div>'


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else text_of(value)


def _figure(chart: str, said: str) -> str:
    return f"<figure>{chart}<figcaption>{text_of(said)}</figcaption></figure>"


def _tools(prefix: str, hint: str, orders: Mapping[str, str]) -> str:
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


SECTIONS: tuple[tuple[str, str, Callable[[Facts], str]], ...] = (
    ("Texts", "texts", _lengths),
    ("Similarity", "similarity", _similarity),
    ("Map", "map-section", _map),
    ("Clusters", "clusters", _clusters),
    ("Training", "training", _training),
    ("Scores", "scores", _tables("scores")),
    ("Index", "index", _tables("index")),
    ("Certificate", "certificate", _tables("certificate")),
    ("Time and memory", "stages", _tables("stages")),
    ("Quarantine", "quarantine", _quarantine),
)
