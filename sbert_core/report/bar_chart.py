"""Counts by interval -> an SVG picture of bars, coloured by the style of the page around it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 40
NUM_LABELS = 6
CLASSES = ("first", "second")  # of the sets, in the style sheet


@dataclass(frozen=True, slots=True)
class BarSet:
    """One set of bars: a count for each label."""

    name: str
    counts: Sequence[float]


def bar_chart(
    title: str,
    labels: Sequence[str],
    sets: Sequence[BarSet],
    *,
    is_log: bool = False,
    limit: float | None = None,
) -> str:
    """SVG of one or two sets of bars over common labels, one in front of the other.

    is_log: heights are logarithms of count + 1. limit: position of a vertical line between labels.
    """
    highest = max((count for own in sets for count in own.counts), default=1.0) or 1.0
    scale = _Scale(
        top=math.log10(highest + 1) if is_log else highest,
        step=(WIDTH - LEFT - RIGHT) / max(1, len(labels)),
        is_log=is_log,
    )
    body = [
        _text(WIDTH / 2, 16, title, "middle", 14),
        *_grid(scale),
        *_bars(scale, labels, sets),
        *_labels(scale, labels),
    ]
    if limit is not None:
        x = LEFT + limit * scale.step
        body.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{_y(0)}"/>')
    if len(sets) > 1:
        body += _legend(sets)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="11" role="img" '
        f'aria-label="{escape(title)}">' + "".join(body) + "</svg>"
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """top: value at the upper edge, a logarithm if is_log. step: width of a label."""

    top: float
    step: float
    is_log: bool

    def share(self, count: float) -> float:
        """Height of a bar as a share of the chart's."""
        if not self.top:
            return 0
        return (math.log10(count + 1) if self.is_log else count) / self.top

    def value(self, share: float) -> float:
        return 10 ** (share * self.top) - 1 if self.is_log else share * self.top


def _grid(scale: _Scale) -> Iterator[str]:
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(share)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(LEFT - 6, y + 4, short_number(scale.value(share)), "end")


def _bars(scale: _Scale, labels: Sequence[str], sets: Sequence[BarSet]) -> Iterator[str]:
    width = max(0.6, scale.step * 0.86)
    for own, kind in zip(sets, CLASSES, strict=False):
        for place, count in enumerate(own.counts):
            share = scale.share(count)
            if share > 0:
                x, y = LEFT + place * scale.step, _y(share)
                yield (
                    f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                    f'height="{max(0.5, _y(0) - y):.1f}"><title>{escape(own.name)} '
                    f"{escape(labels[place])}: {count:,.0f}</title></rect>"
                )


def _labels(scale: _Scale, labels: Sequence[str]) -> Iterator[str]:
    for place in range(0, len(labels), max(1, math.ceil(len(labels) / NUM_LABELS))):
        x = LEFT + (place + 0.5) * scale.step
        yield _text(x, HEIGHT - BOTTOM + 16, labels[place], "middle")


def _legend(sets: Sequence[BarSet]) -> Iterator[str]:
    x = LEFT
    for own, kind in zip(sets, CLASSES, strict=False):
        yield f'<rect class="{kind}" x="{x}" y="{HEIGHT - 14}" width="10" height="10"/>'
        yield _text(x + 15, HEIGHT - 5, own.name, "start")
        x += 200


def short_number(value: float) -> str:
    """A number in three digits, with k, M or G."""
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
