"""Labelled evaluation files: small, read whole, columns found by the names public data sets use."""

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.formats import read_table
from sbert_core.corpus.parquet import decode_texts
from sbert_core.text import invalid_reason

log = logging.getLogger(__name__)

TEXT_PAIRS = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
)
SCORES = ("score", "relatedness", "label")


def read_labelled(place: str) -> pa.Table:
    """All rows of all files of a path, folder, glob or URI, in one table."""
    corpus = find_corpus(place)
    tables = [read_table(corpus.storage, file) for file in corpus.files]
    return pa.concat_tables(tables, promote_options="default")


def find_column(table: pa.Table, names: Sequence[str], place: str) -> str:
    """The first of `names` that is a column; ValueError with `place` if none is."""
    for name in names:
        if name in table.column_names:
            return name
    raise ValueError(
        f"{place} has no column {' or '.join(names)}; it has: {', '.join(table.column_names)}"
    )


def read_text_pairs(table: pa.Table, place: str) -> list[list[str]]:
    """The first and the second text of every row, as two lists."""
    return [read_texts(table, name, place) for name in find_text_columns(table, place)]


def find_text_columns(table: pa.Table, place: str) -> tuple[str, str]:
    """The first pair of TEXT_PAIRS that the table has; ValueError with `place` if it has none."""
    for names in TEXT_PAIRS:
        if all(name in table.column_names for name in names):
            return names
    usual = "; ".join(", ".join(names) for names in TEXT_PAIRS)
    raise ValueError(
        f"{place} has no pair of text columns ({usual}); it has: {', '.join(table.column_names)}"
    )


def read_texts(table: pa.Table, name: str, place: str) -> list[str]:
    """A column of texts; ValueError for an invalid one, with its row."""
    values = decode_texts(table[name])
    for row, value in enumerate(values):
        if reason := invalid_reason(value):
            raise ValueError(f"{name!r} of row {row} in {place} is {reason}; remove the row")
    return [str(value) for value in values]


def drop_rows_without_text(table: pa.Table, names: Sequence[str], place: str) -> pa.Table:
    """Rows with valid texts in all columns `names`; the others are counted in a warning.

    Public test sets hold a few rows without a text.
    """
    is_whole = np.ones(table.num_rows, bool)
    for name in names:
        is_whole &= [invalid_reason(value) is None for value in decode_texts(table[name])]
    if not is_whole.all():
        log.warning("%s: %d rows without text are left out", place, (~is_whole).sum())
    return table.filter(pa.array(is_whole))


def read_numbers(table: pa.Table, name: str, place: str) -> np.ndarray:
    """A column as float64, numbers as text included; ValueError for other or infinite values."""
    try:
        found = np.array([float(value) for value in table[name].to_pylist()], np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name!r} of {place} is not all numbers: {error}") from None
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found))[0])
        raise ValueError(f"{name!r} of row {row} in {place} is {found[row]}; give a number")
    return found


def read_scored_pairs(place: str) -> tuple[list[list[str]], np.ndarray]:
    """The two texts and the scores of an STS file, in whatever range its scores are."""
    table = read_labelled(place)
    return read_text_pairs(table, place), read_numbers(
        table, find_column(table, SCORES, place), place
    )
