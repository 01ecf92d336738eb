"""Counts by interval -> an SVG picture of bars, coloured by the page it stands in."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 40
NUM_LABELS = 6


@dataclass(frozen=True, slots=True)
class Bars:
    """One set of bars: a count for each label."""

    name: str
    counts: Sequence[float]


def bar_chart(
    title: str,
    labels: Sequence[str],
    sets: Sequence[Bars],
    *,
    is_log: bool = False,
    limit: float | None = None,
) -> str:
    """Sets of bars over common labels, one before the other; limit: a place between labels."""
    highest = max((count for own in sets for count in own.counts), default=1.0) or 1.0
    step = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    top = math.log10(highest + 1) if is_log else highest
    body = [_text(WIDTH / 2, 16, title, "middle", 14)]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(share)
        value = 10 ** (share * top) - 1 if is_log else share * top
        body.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(_text(LEFT - 6, y + 4, short_number(value), "end"))
    width = max(0.6, step * 0.86)
    for own, kind in zip(sets, ("first", "second"), strict=False):
        for place, count in enumerate(own.counts):
            share = (math.log10(count + 1) if is_log else count) / top if top else 0
            if share > 0:
                x, y = LEFT + place * step, _y(share)
                body.append(
                    f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                    f'height="{max(0.5, _y(0) - y):.1f}"><title>{escape(own.name)} '
                    f"{escape(labels[place])}: {count:,.0f}</title></rect>"
                )
    for place in range(0, len(labels), max(1, math.ceil(len(labels) / NUM_LABELS))):
        x = LEFT + (place + 0.5) * step
        body.append(_text(x, HEIGHT - BOTTOM + 16, labels[place], "middle"))
    if limit is not None:
        x = LEFT + limit * step
        body.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{_y(0)}"/>')
    key = LEFT
    if len(sets) > 1:
        for own, kind in zip(sets, ("first", "second"), strict=False):
            body.append(
                f'<rect class="{kind}" x="{key}" y="{HEIGHT - 14}" width="10" height="10"/>'
            )
            body.append(_text(key + 15, HEIGHT - 5, own.name, "start"))
            key += 200
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="11" role="img" '
        f'aria-label="{escape(title)}">' + "".join(body) + "</svg>"
    )


def short_number(value: float) -> str:
    for size, mark in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{mark}"
    return f"{value:.3g}"


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )
