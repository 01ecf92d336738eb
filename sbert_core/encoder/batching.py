"""Token lengths -> batches under a token budget.

In:  the number of tokens of each text.
Out: batches of text numbers, longest texts first, each batch sorted by length.
Gives up: the input order inside a batch; rows carry their numbers, so the caller restores it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

import numpy as np


class BatchLayout(StrEnum):
    """How a model receives its batches: texts end to end, or padded to the longest."""

    FLAT = "flat"
    PADDED = "padded"


class Group(NamedTuple):
    """Neighbouring texts of one batch with the same number of tokens."""

    first_row: int
    first_token: int
    num_texts: int
    length: int

    @property
    def rows(self) -> slice:
        """The group's texts among the rows of its batch."""
        return slice(self.first_row, self.first_row + self.num_texts)

    @property
    def tokens(self) -> slice:
        """The group's tokens in the flat row of its batch."""
        return slice(self.first_token, self.first_token + self.num_texts * self.length)


@dataclass(frozen=True, slots=True)
class Batch:
    """Token ids of a few texts, longest first, end to end in one flat row.

    rows: text numbers. lengths: tokens of each. groups: texts of equal length, in order.
    """

    rows: np.ndarray
    lengths: np.ndarray
    ids_T: np.ndarray
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, rows: np.ndarray, ids: list[np.ndarray]) -> "Batch":
        """The batch of these text numbers; `ids` holds their token ids in the same order."""
        lengths = np.array([len(text) for text in ids], dtype=np.int64)
        return cls(rows, lengths, np.concatenate(ids), tuple(_groups(lengths)))

    @property
    def num_tokens(self) -> int:
        """Tokens of all texts."""
        return len(self.ids_T)

    def halves(self) -> "tuple[Batch, Batch]":
        """The same texts as two batches."""
        middle = len(self.rows) // 2
        ids = np.split(self.ids_T, np.cumsum(self.lengths)[:-1])
        return (
            Batch.of(self.rows[:middle], ids[:middle]),
            Batch.of(self.rows[middle:], ids[middle:]),
        )


def _groups(lengths: np.ndarray) -> Iterator[Group]:
    first_row = first_token = 0
    for length, members in groupby(lengths.tolist()):
        num_texts = sum(1 for _ in members)
        yield Group(first_row, first_token, num_texts, length)
        first_row += num_texts
        first_token += num_texts * length


def sort_longest_first(lengths: np.ndarray) -> np.ndarray:
    """Text numbers by falling length; equal lengths keep their order."""
    return np.argsort(-np.asarray(lengths), kind="stable")


def flat_batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Text numbers of batches whose tokens fit the budget; a longer text is a batch by itself."""
    return _cut_batches(lengths, lambda longest, num_texts, total: total <= budget)


def padded_batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Text numbers of batches that fit the budget after padding each text to the longest."""
    return _cut_batches(lengths, lambda longest, num_texts, total: longest * num_texts <= budget)


def _cut_batches(lengths: np.ndarray, fits: Callable[[int, int, int], bool]) -> list[np.ndarray]:
    """Cut the texts, longest first, wherever `fits(longest, num_texts, num_tokens)` is false."""
    batches: list[np.ndarray] = []
    batch: list[int] = []
    total = 0
    for row in sort_longest_first(lengths).tolist():
        length = int(lengths[row])
        if batch and not fits(int(lengths[batch[0]]), len(batch) + 1, total + length):
            batches.append(np.array(batch))
            batch, total = [], 0
        batch.append(row)
        total += length
    return [*batches, np.array(batch)] if batch else batches


def num_padding(lengths: np.ndarray, batch_size: int) -> int:
    """Padding tokens if texts in this order went in batches of `batch_size` texts."""
    batches = np.split(lengths, range(batch_size, len(lengths), batch_size))
    return int(sum(batch.max() * len(batch) - batch.sum() for batch in batches if len(batch)))
