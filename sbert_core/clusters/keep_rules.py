"""Rules of what to keep -> an order of rows, the ones to keep first.

In:  a text such as "source=wiki>web,longest,newest:date", and a table of the columns it names.
Out: the place of each row in the order.

The first rule decides, the next one among equals, the smaller id at last. A row without a value
comes after all that have one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LENGTH = "num_chars"  # of vectors artifacts
ID = "id"
ORDERS = {"newest": "descending", "oldest": "ascending"}
ORDERS |= {"highest": "descending", "lowest": "ascending"}
LENGTHS = {"longest": "descending", "shortest": "ascending"}
FORMS = (
    "longest, shortest, newest:COLUMN, oldest:COLUMN, highest:COLUMN, lowest:COLUMN or COLUMN=A>B"
)
PREFERENCE = re.compile(r"([^=:]+)=(.+)")


@dataclass(frozen=True, slots=True)
class Rule:
    """One column and which of its values come first. values: those preferred, best first."""

    column: str
    order: str = "ascending"
    values: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Rule":
        word = text.strip()
        if word in LENGTHS:
            return cls(LENGTH, LENGTHS[word])
        kind, colon, column = word.partition(":")
        if colon and kind in ORDERS and column:
            return cls(column, ORDERS[kind])
        if found := PREFERENCE.fullmatch(word):
            values = tuple(value.strip() for value in found[2].split(">"))
            if all(values) and len(set(values)) == len(values):
                return cls(found[1].strip(), values=values)
        raise ValueError(f"{word!r} is no rule of what to keep; give {FORMS}")

    def key(self, column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        """What to sort rows by."""
        if pa.types.is_nested(column.type):
            raise ValueError(
                f"column {self.column!r} holds {column.type}; rules order numbers, dates and texts"
            )
        if self.values:
            return pc.index_in(
                column.cast(pa.large_string()), pa.array(self.values, pa.large_string())
            )
        if pa.types.is_dictionary(column.type):
            return column.cast(column.type.value_type)
        return column


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Rules in order; none for an empty text."""
    return tuple(Rule.parse(word) for word in text.split(",")) if text.strip() else ()


def named_columns(text: str) -> list[str]:
    """Columns that rules call by name; `longest` and `shortest` name none."""
    found = [_around_column(word.strip()) for word in text.split(",")]
    return list(dict.fromkeys(column for _, column, _ in found if column))


def with_names(text: str, names: Mapping[str, str]) -> str:
    """The same rules about columns that have other names."""
    found = [_around_column(word.strip()) for word in text.split(",")]
    return ",".join(f"{before}{names.get(c, c)}{behind}" for before, c, behind in found)


def _around_column(word: str) -> tuple[str, str, str]:
    """A rule in three: what is before its column, the column, what is behind."""
    kind, colon, column = word.partition(":")
    if colon and kind in ORDERS:
        return f"{kind}:", column, ""
    if found := PREFERENCE.fullmatch(word):
        return "", found[1].strip(), f"={found[2]}"
    return word, "", ""


def columns_of(rules: Iterable[Rule]) -> list[str]:
    return list(dict.fromkeys(rule.column for rule in rules))


def keep_order(
    rules: Sequence[Rule], table: pa.Table, ids: pa.Array, first: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """The place of each row. first: sets of rows (bool) that come before, each before the next."""
    keys: dict[str, pa.ChunkedArray | pa.Array] = {}
    orders: list[tuple[str, str]] = []
    for number, is_first in enumerate(first):
        keys[f"first-{number}"] = pa.array(~is_first)
        orders.append((f"first-{number}", "ascending"))
    for number, rule in enumerate(rules):
        keys[f"rule-{number}"] = rule.key(table[rule.column])
        orders.append((f"rule-{number}", rule.order))
    keys["id"] = ids
    orders.append(("id", "ascending"))
    order = pc.sort_indices(pa.table(keys), sort_keys=orders).to_numpy()
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return place
