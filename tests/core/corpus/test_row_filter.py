"""Conditions against an oracle of three-valued logic, and what is refused."""

import random
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_core.corpus.errors import IncompatibleTypes, InvalidCondition
from sbert_core.corpus.reader import CorpusReader, IdKind
from sbert_core.corpus.row_filter import RowFilter
from sbert_core.index.filter import row_mask

NUMBERS = [None, -1, 0, 1, 2, 7]
TEXTS = [None, "", "e", "n", "en", "it's", 'say "a"', "a=b", "and", "x <> y", "ünï"]
TRUTHS = [None, True, False]
ORDERS = {
    "==": lambda a, b: a == b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@dataclass(frozen=True)
class Condition:
    """Words, and what they mean for a row: True, False or None for neither."""

    words: str
    means: object

    def __call__(self, row):
        return self.means(row)


def spelled(value, rng) -> str:
    """A literal as Python or as SQL writes it."""
    if not isinstance(value, str):
        return repr(value)
    if rng.random() < 0.5:
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    return repr(value)


def compared(rng) -> Condition:
    column, values = rng.choice([("n", NUMBERS), ("m", NUMBERS), ("s", TEXTS), ("t", TEXTS)])
    kind = rng.choice(["order", "columns", "in", "null", "flag"])
    if kind == "flag":
        return Condition("b", lambda row: row["b"])
    if kind == "null":
        is_null = rng.random() < 0.5
        word = rng.choice(["is None", "== None"] if is_null else ["is not None", "!= None"])
        return Condition(f"{column} {word}", lambda row: (row[column] is None) == is_null)
    if kind == "in":
        some = rng.sample(values[1:], rng.randint(1, 3))
        words = ", ".join(spelled(value, rng) for value in some)
        words = rng.choice([f"({words})", f"[{words}]", words if len(some) == 1 else f"({words})"])
        is_in = rng.random() < 0.5

        def listed(row):
            return None if row[column] is None else (row[column] in some) == is_in

        return Condition(f"{column} {'in' if is_in else 'not in'} {words}", listed)
    word = rng.choice(list(ORDERS))
    if kind == "columns":
        other = {"n": "m", "m": "n", "s": "t", "t": "s"}[column]
        return Condition(
            f"{column} {word} {other}", lambda row: order(word, row, column, row[other])
        )
    value = rng.choice(values[1:])
    return Condition(
        f"{column} {word} {spelled(value, rng)}", lambda row: order(word, row, column, value)
    )


def order(word, row, column, value):
    return None if row[column] is None or value is None else ORDERS[word](row[column], value)


def joined(rng, depth) -> Condition:
    if depth == 0 or rng.random() < 0.2:
        return compared(rng)
    kind = rng.choice(["and", "or", "not"])
    left = joined(rng, depth - 1)
    if kind == "not":
        return Condition(
            f"not ({left.words})", lambda row: None if left(row) is None else not left(row)
        )
    right, stop = joined(rng, depth - 1), kind == "or"

    def both(row):
        found = (left(row), right(row))
        return stop if stop in found else (None if None in found else not stop)

    return Condition(f"({left.words}) {kind} ({right.words})", both)


def random_columns(rng, number) -> dict[str, pa.Array]:
    numbers = rng.choice([pa.int64(), pa.int8(), pa.float64(), pa.int32()])
    texts = rng.choice([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    values = {"n": NUMBERS, "m": NUMBERS, "s": TEXTS, "t": TEXTS, "b": TRUTHS}
    kinds = {"n": numbers, "m": pa.int64(), "s": texts, "t": pa.string(), "b": pa.bool_()}
    return {name: pa.array(rng.choices(own, k=number), kinds[name]) for name, own in values.items()}


@pytest.mark.parametrize("seed", range(300))
def test_condition_random_equals_three_valued_logic(seed):
    rng = random.Random(seed)
    condition = joined(rng, rng.randint(0, 4))
    columns = random_columns(rng, 40)
    rows = [
        dict(zip(columns, row, strict=True))
        for row in zip(*(c.to_pylist() for c in columns.values()), strict=True)
    ]
    want = [condition(row) is True for row in rows]
    assert RowFilter(condition.words).mask(columns, "where").tolist() == want, condition.words
    table = pa.table(columns)
    assert row_mask(table, condition.words).tolist() == want
    assert row_mask(table.slice(0, 0), condition.words).tolist() == []


@pytest.mark.parametrize(
    "words", ["lang in ('en')", "lang in 'en'", "lang in ['en']", "lang = 'en'", "lang in ('en',)"]
)
def test_condition_of_one_text_takes_that_text(words):
    columns = {"lang": pa.array(["en", "e", "n", None, "de"])}
    assert RowFilter(words).mask(columns, "where").tolist() == [True, False, False, False, False]


def test_condition_on_a_column_of_nulls_takes_none_of_them():
    columns = {"x": pa.nulls(2)}
    for words in ("x in ('a')", "x not in (1, 2)", "x == 'a'", "x < 3", "x", "not x"):
        assert RowFilter(words).mask(columns, "where").tolist() == [False, False]
    assert RowFilter("x is None").mask(columns, "where").all()


@pytest.mark.parametrize(
    "words",
    [
        "s == 'a' 'b'",
        "'s' == 'en'",
        "s in ()",
        "s in ('a', None)",
        "s in ('a', 1)",
        "s in n",
        "s < None",
        "None",
        "True",
        "s == 1j",
        "s == ('a', 'b')",
        "s is 'a'",
        "n == 99999999999999999999",
        "n == 1 # and s == 'a'",
        "s === 'a'",
        "s == 'a' AND n == 1",
        "s == f'{n}'",
        "(" * 500 + "n" + ")" * 500,
        "not " * 5000 + "b",
        "s == 'a\0'",
        "",
    ],
)
def test_condition_that_is_none_is_refused_in_one_line(words):
    with pytest.raises(InvalidCondition) as caught:
        RowFilter(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("words", ["s >= 3", "n in ('1')", "n == 'a'", "b == 1", "s", "s in (1)"])
def test_condition_of_another_kind_than_its_column_is_refused(words):
    columns = {"s": pa.array(["a"]), "n": pa.array([1]), "b": pa.array([True])}
    with pytest.raises(IncompatibleTypes) as caught:
        RowFilter(words).mask(columns, "where")
    assert set(caught.value.types) == set(RowFilter(words).columns)
    with pytest.raises(IncompatibleTypes):
        row_mask(pa.table(columns).slice(0, 0), words)


def test_condition_beside_columns_of_any_name_takes_the_right_rows(tmp_path):
    """`#`, `_` and the like are names of spreadsheets; none is what the reader counts rows by."""
    number = 12
    names = ["#", "_", "row", "mask", "__index_level_0__", "place", ""]
    columns = {name: list(range(number, 0, -1)) for name in names}
    columns |= {"text": [f"t{n}" for n in range(number)], "lang": ["en", "de"] * (number // 2)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    for name in names:
        reading = CorpusReader(
            root=str(tmp_path),
            template="{text}",
            id_kind=IdKind.COLUMN,
            id_column=name,
            carry={"lang": "lang", "own": name},
            where=RowFilter("lang == 'en'"),
            partition_types={},
            staged={},
        )
        rows = reading.read("a.parquet", 0, number)
        assert rows.row.tolist() == list(range(0, number, 2))
        assert rows.texts == [f"t{n}" for n in range(0, number, 2)]
        assert set(rows.carried["lang"].to_pylist()) == {"en"}
        assert np.array_equal(rows.ids, rows.carried["own"])
        assert rows.ids.to_pylist() == list(range(number, 0, -2))
