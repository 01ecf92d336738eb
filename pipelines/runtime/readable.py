"""Reports that can be read in a Python shell and in a notebook.

In:  a dataclass of counts, texts, nested dataclasses and tuples of dataclasses.
Out: a short text for `repr`, the same as tables in HTML. Texts of a corpus are escaped in both.
"""

import html
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

from pipelines.runtime.terminal import one_line

CELL_CHARS = 60
ROWS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Section:
    """One table of a report. rows: the header first; two columns without a header for values."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    has_header: bool


class ReadableReport:
    """A base of dataclasses with a short `repr` and tables for notebooks."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # `dataclass` writes a repr of all fields unless the class has one itself.
        setattr(cls, "__repr__", ReadableReport.__repr__)  # noqa: B010 - mypy refuses the plain form

    def __repr__(self) -> str:
        lines = []
        for section in _sections(self, type(self).__name__):
            columns = zip(*section.rows, strict=True)
            widths = [max(len(cell) for cell in column) for column in columns]
            lines.append(section.title)
            for row in section.rows:
                cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
                lines.append(f"  {'  '.join(cells)}".rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return "".join(_section_html(own) for own in _sections(self, type(self).__name__))


def _sections(record: object, title: str) -> Iterator[Section]:
    """A table of the record's plain values, then one for each record or list of records in it."""
    assert is_dataclass(record)
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    plain = tuple((name, text) for name, v in values.items() if (text := _cell(v)) is not None)
    if plain:
        yield Section(title, plain, has_header=False)
    for name, value in values.items():
        if is_dataclass(value):
            yield from _sections(value, name)
        elif isinstance(value, tuple) and value and all(is_dataclass(item) for item in value):
            yield _list_section(name, value)


def _list_section(title: str, records: tuple[object, ...]) -> Section:
    """One row per record, in the columns that have a plain value in any of them."""
    shown = records[:ROWS_SHOWN]
    cells = [
        {field.name: _cell(getattr(record, field.name)) for field in fields(record)}
        for record in shown
        if is_dataclass(record)
    ]
    columns = tuple(name for name in cells[0] if any(own[name] is not None for own in cells))
    rows = tuple(tuple(own[name] or "" for name in columns) for own in cells)
    more = f", first {ROWS_SHOWN} of {len(records):,}" if len(records) > ROWS_SHOWN else ""
    return Section(f"{title}{more}", (columns, *rows), has_header=True)


def _cell(value: object) -> str | None:
    """A plain value as text; None where it has no short form."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None or is_dataclass(value) or isinstance(value, dict | list | tuple):
        return None
    text = " ".join(str(value).split())
    return one_line(text if len(text) <= CELL_CHARS else f"{text[:CELL_CHARS]}...")


def _section_html(section: Section) -> str:
    rows = []
    for number, row in enumerate(section.rows):
        tag = "th" if section.has_header and not number else "td"
        cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        rows.append(f"<tr>{cells}</tr>")
    return f"<table><caption>{html.escape(section.title)}</caption>{''.join(rows)}</table>"
