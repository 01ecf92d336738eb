"""Small labelled files for judging: read whole, by the names public data sets use."""

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.formats import whole_table
from sbert_core.corpus.parquet import decoded
from sbert_core.text import invalid_reason

log = logging.getLogger(__name__)

TEXT_PAIRS = (
    ("sentence1", "sentence2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
)
SCORES = ("score", "relatedness", "label")


def table_of(place: str) -> pa.Table:
    """All rows of a file, or of all files of a folder or glob."""
    corpus = find_corpus(place)
    tables = [whole_table(corpus.storage, file) for file in corpus.files]
    return pa.concat_tables(tables, promote_options="default")


def column(table: pa.Table, names: Sequence[str], place: str) -> str:
    """The first of some usual names that is there."""
    for name in names:
        if name in table.column_names:
            return name
    raise ValueError(
        f"{place} has no column {' or '.join(names)}; it has: {', '.join(table.column_names)}"
    )


def text_pair(table: pa.Table, place: str) -> list[list[str]]:
    """The two texts of every row."""
    return [texts(table, name, place) for name in text_names(table, place)]


def text_names(table: pa.Table, place: str) -> tuple[str, str]:
    """The first usual pair of names that is there."""
    for names in TEXT_PAIRS:
        if all(name in table.column_names for name in names):
            return names
    usual = "; ".join(", ".join(names) for names in TEXT_PAIRS)
    raise ValueError(
        f"{place} has no pair of text columns ({usual}); it has: {', '.join(table.column_names)}"
    )


def texts(table: pa.Table, name: str, place: str) -> list[str]:
    """A column of texts; one that is missing is an error."""
    values = decoded(table[name])
    for row, value in enumerate(values):
        if reason := invalid_reason(value):
            raise ValueError(f"{name!r} of row {row} in {place} is {reason}; remove the row")
    return [str(value) for value in values]


def with_texts(table: pa.Table, names: Sequence[str], place: str) -> pa.Table:
    """Rows whose texts are all there. Public test sets hold a few without; they are counted."""
    is_whole = np.ones(table.num_rows, bool)
    for name in names:
        is_whole &= [invalid_reason(value) is None for value in decoded(table[name])]
    if not is_whole.all():
        log.warning("%s: %d rows without text are left out", place, (~is_whole).sum())
    return table.filter(pa.array(is_whole))


def numbers(table: pa.Table, name: str, place: str) -> np.ndarray:
    """A column of numbers; text that spells them is taken too."""
    try:
        found = np.array([float(value) for value in table[name].to_pylist()], np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name!r} of {place} is not all numbers: {error}") from None
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found))[0])
        raise ValueError(f"{name!r} of row {row} in {place} is {found[row]}; give a number")
    return found


def scored_rows(place: str) -> tuple[list[list[str]], np.ndarray]:
    """Texts and scores of an STS file; correlations do not mind the range of scores."""
    table = table_of(place)
    return text_pair(table, place), numbers(table, column(table, SCORES, place), place)
