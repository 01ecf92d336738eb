"""Facts of a run -> one page that needs no network.

In:  ReportFacts.
Out: HTML with style, script and data inside. Its content security policy lets nothing else load or
     run, and every text of the corpus is escaped here or set as text by the script.
"""

import base64
import hashlib
import json
from importlib.resources import files

from sbert_core.json_record import encode
from sbert_core.report.facts import ReportFacts
from sbert_core.report.sections import SECTIONS, escape_text, headline_html


def render_page(facts: ReportFacts) -> str:
    """The HTML of the page; sections without content are left out."""
    style, script = (_read_asset(name) for name in ("page.css", "page.js"))
    sections = [(title, name, body) for title, name, make in SECTIONS if (body := make(facts))]
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for title, name, _ in sections)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>'
        f"{inside}</section>"
        for title, name, inside in sections
    )
    policy = (
        f"default-src 'none'; style-src '{_csp_hash(style)}'; script-src '{_csp_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # What the script reads.
    data = {"clusters": facts.clusters, "quarantine": facts.quarantine, "map": facts.map}
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape_text(facts.title)}</title><style>{style}</style></head><body><main>"
        f"<header><h1>{escape_text(facts.title)}</h1>"
        f'<p class="note">{escape_text(facts.subtitle)}</p>{headline_html(facts)}'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>{body}'
        f"<footer>{''.join(f'<p>{escape_text(note)}</p>' for note in facts.notes)}</footer></main>"
        f'<script type="application/json" id="data">{_inline_json(data)}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def _inline_json(value: object) -> str:
    """JSON that cannot end the script element around it."""
    text = json.dumps(encode(value), ensure_ascii=False, separators=(",", ":"))
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _read_asset(name: str) -> str:
    return files("sbert_core.report").joinpath("assets", name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """The hash by which a content security policy allows an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
