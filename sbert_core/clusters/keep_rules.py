"""Keep rules -> an order of rows, the ones to keep first.

In:  a text such as "source=wiki>web,longest,newest:date", and a table of the columns it names.
Out: the rank of each row.

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
ORDERS = {"newest": "descending", "oldest": "ascending"}
ORDERS |= {"highest": "descending", "lowest": "ascending"}
LENGTHS = {"longest": "descending", "shortest": "ascending"}
FORMS = (
    "longest, shortest, newest:COLUMN, oldest:COLUMN, highest:COLUMN, lowest:COLUMN or COLUMN=A>B"
)
PREFERENCE = re.compile(r"([^=:]+)=(.+)")


class UnknownKeepRule(ValueError):
    """A text that is not a keep rule. rule: the text."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"{rule!r} is no rule of what to keep; give {FORMS}")
        self.rule = rule


@dataclass(frozen=True, slots=True)
class KeepRule:
    """One column and which of its values come first. values: those preferred, best first."""

    column: str
    order: str = "ascending"
    values: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "KeepRule":
        """One rule from its text; UnknownKeepRule if it has none of the known forms."""
        word = text.strip()
        if word in LENGTHS:
            return cls(LENGTH, LENGTHS[word])
        kind, colon, column = word.partition(":")
        if colon and kind in ORDERS and column:
            return cls(column, ORDERS[kind])
        if match := PREFERENCE.fullmatch(word):
            values = tuple(value.strip() for value in match[2].split(">"))
            if all(values) and len(set(values)) == len(values):
                return cls(match[1].strip(), values=values)
        raise UnknownKeepRule(word)

    def sort_key(self, column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        """Values to sort rows by, in the rule's order; ValueError for nested types."""
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


def parse_rules(text: str) -> tuple[KeepRule, ...]:
    """Rules in order, separated by commas; none for an empty text."""
    return tuple(KeepRule.parse(word) for word in text.split(",")) if text.strip() else ()


def named_columns(text: str) -> list[str]:
    """Columns that rules call by name; `longest` and `shortest` name none."""
    parts = [_split_at_column(word.strip()) for word in text.split(",")]
    return list(dict.fromkeys(column for _, column, _ in parts if column))


def rename_columns(text: str, names: Mapping[str, str]) -> str:
    """The same rules with other column names. names: new ones by old ones."""
    parts = [_split_at_column(word.strip()) for word in text.split(",")]
    return ",".join(f"{before}{names.get(c, c)}{behind}" for before, c, behind in parts)


def _split_at_column(word: str) -> tuple[str, str, str]:
    """A rule in three parts: what is before its column, the column, what is behind."""
    kind, colon, column = word.partition(":")
    if colon and kind in ORDERS:
        return f"{kind}:", column, ""
    if match := PREFERENCE.fullmatch(word):
        return "", match[1].strip(), f"={match[2]}"
    return word, "", ""


def required_columns(rules: Iterable[KeepRule]) -> list[str]:
    """Columns that rules read, each once; `num_chars` for rules of length."""
    return list(dict.fromkeys(rule.column for rule in rules))


def rank_rows(
    rules: Sequence[KeepRule], table: pa.Table, ids: pa.Array, first: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """The rank of each row in the order of keeping, int32.

    table: columns of the rules, by row. first: sets of rows (bool) that come before all others,
    each before the next.
    """
    keys: dict[str, pa.ChunkedArray | pa.Array] = {}
    orders: list[tuple[str, str]] = []
    for number, is_first in enumerate(first):
        keys[f"first-{number}"] = pa.array(~is_first)
        orders.append((f"first-{number}", "ascending"))
    for number, rule in enumerate(rules):
        keys[f"rule-{number}"] = rule.sort_key(table[rule.column])
        orders.append((f"rule-{number}", rule.order))
    keys["id"] = ids
    orders.append(("id", "ascending"))
    order = pc.sort_indices(pa.table(keys), sort_keys=orders).to_numpy()
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank
