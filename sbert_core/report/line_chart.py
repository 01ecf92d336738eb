"""Series of points -> an SVG picture, without a plotting library."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 64, 36, 44
NUM_TICKS = 5
MAX_CIRCLES = 30  # more points are drawn as a line alone
COLOURS = ("#2f6fab", "#c8553d", "#4a7c59", "#8c5e9e")

Points = Sequence[tuple[float, float]]
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """A line. is_second: on the scale at the right, for values of another unit."""

    name: str
    points: Points
    is_second: bool = False


def line_chart(
    title: str, x_label: str, series: Sequence[Series], *, from_zero: bool = False
) -> str:
    """SVG of lines over a common x axis, with a scale on the left and one on the right if needed.

    Series without points are left out. from_zero: scales begin at zero.
    """
    shown = [line for line in series if line.points]
    spans = {
        second: _span([y for line in shown if line.is_second == second for _, y in line.points])
        for second in (False, True)
        if any(line.is_second == second for line in shown)
    }
    if from_zero:
        spans = {second: (min(0.0, low), high) for second, (low, high) in spans.items()}
    x_span = _span([x for line in shown for x, _ in line.points])
    body = [
        _text(WIDTH / 2, 20, title, "middle", 15),
        _text(WIDTH / 2, HEIGHT - 8, x_label, "middle"),
    ]
    for tick in _ticks(x_span):
        body.append(_text(_x(tick, x_span), HEIGHT - BOTTOM + 18, _number(tick), "middle"))
    for is_second, span in spans.items():
        body += _draw_scale(span, is_second)
    for number, line in enumerate(shown):
        body += _draw_line(line, number, x_span, spans[line.is_second])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" '
        f'aria-label="{escape(title)}">\n' + "\n".join(body) + "\n</svg>\n"
    )


def _draw_scale(span: Span, is_second: bool) -> list[str]:
    """Numbers beside the chart; those of the first scale have grid lines."""
    x, anchor = (WIDTH - RIGHT + 8, "start") if is_second else (LEFT - 8, "end")
    parts = []
    for tick in _ticks(span):
        y = _y(tick, span)
        parts.append(_text(x, y + 4, _number(tick), anchor))
        if not is_second:
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            )
    return parts


def _draw_line(line: Series, number: int, x_span: Span, span: Span) -> list[str]:
    """The line, its points if there are few, and its name. number: chooses colour and position."""
    colour = COLOURS[number % len(COLOURS)]
    places = [(_x(x, x_span), _y(y, span)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>']
    if len(places) <= MAX_CIRCLES:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    key = LEFT + 8 + number * 150
    parts.append(f'<rect x="{key}" y="{TOP - 8}" width="12" height="4" fill="{colour}"/>')
    return [*parts, _text(key + 18, TOP - 2, line.name, "start")]


def _span(values: Sequence[float]) -> Span:
    """Lowest and highest value, one apart if they are equal."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _ticks(span: Span) -> list[float]:
    low, high = span
    return [low + (high - low) * i / (NUM_TICKS - 1) for i in range(NUM_TICKS)]


def _x(value: float, span: Span) -> float:
    return LEFT + (value - span[0]) / (span[1] - span[0]) * (WIDTH - LEFT - RIGHT)


def _y(value: float, span: Span) -> float:
    return HEIGHT - BOTTOM - (value - span[0]) / (span[1] - span[0]) * (HEIGHT - TOP - BOTTOM)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="#333">{escape(text)}</text>'
    )
