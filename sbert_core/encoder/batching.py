"""Token lengths -> batches under a token budget.

In:  the number of tokens of each text.
Out: batches of text numbers, longest texts first, each batch sorted by length.
Gives up: the input order inside a batch; rows carry their numbers, so the caller restores it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

LEAST_EVEN_TOKENS = 256  # a product of fewer rows runs at less than nine tenths of its speed


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
        return cls.packed(rows, lengths, np.concatenate(ids))

    @classmethod
    def packed(cls, rows: np.ndarray, lengths: np.ndarray, ids_T: np.ndarray) -> "Batch":
        """The batch of these text numbers; `ids_T` holds their token ids end to end."""
        return cls(rows, lengths, ids_T, _groups(lengths))

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


def _groups(lengths: np.ndarray) -> tuple[Group, ...]:
    first = np.flatnonzero(np.diff(lengths, prepend=-1))
    num_texts = np.diff(first, append=len(lengths))
    length = lengths[first]
    num_tokens = num_texts * length
    columns = (first, np.cumsum(num_tokens) - num_tokens, num_texts, length)
    return tuple(Group(*row) for row in zip(*(c.tolist() for c in columns), strict=True))


def sort_longest_first(lengths: np.ndarray) -> np.ndarray:
    """Text numbers by falling length; equal lengths keep their order."""
    return np.argsort(-np.asarray(lengths), kind="stable")


def flat_batches(lengths: np.ndarray, budget: int, num_parallel: int = 1) -> list[np.ndarray]:
    """Text numbers of batches whose tokens fit the budget; a longer text is a batch by itself.

    Batches have about equal numbers of tokens. Their number is a multiple of `num_parallel`, unless
    they were too small then, so that workers side by side end together.
    """
    order = sort_longest_first(lengths)
    ends = np.concatenate([[0], np.cumsum(np.asarray(lengths)[order])])
    least = len(_full_batches(ends, budget))
    even = -(-least // num_parallel) * num_parallel
    num_batches = max(least, min(even, int(ends[-1]) // LEAST_EVEN_TOKENS))
    return np.split(order, _even_batches(ends, budget, num_batches)[:-1]) if len(order) else []


def _full_batches(ends: np.ndarray, budget: int) -> list[int]:
    """Where batches end that take what fits the budget. ends: tokens before each text."""
    cuts = [0]
    while cuts[-1] < len(ends) - 1:
        cuts.append(_last_that_fits(ends, cuts[-1], budget))
    return cuts[1:]


def _even_batches(ends: np.ndarray, budget: int, num_batches: int) -> list[int]:
    """Where `num_batches` batches end, or a few more, each of an equal share of what is left."""
    cuts = [0]
    while cuts[-1] < len(ends) - 1:
        first = cuts[-1]
        share = (ends[-1] - ends[first]) / max(1, num_batches - len(cuts) + 1)
        end = int(np.abs(ends - (ends[first] + share)).argmin())
        cuts.append(max(first + 1, min(end, _last_that_fits(ends, first, budget))))
    return cuts[1:]


def _last_that_fits(ends: np.ndarray, first: int, budget: int) -> int:
    """The end of a batch from text `first` on that takes what fits the budget, at least one."""
    return max(first + 1, int(np.searchsorted(ends, ends[first] + budget, side="right")) - 1)


def padded_batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """Text numbers of batches that fit the budget after padding each text to the longest."""
    order = sort_longest_first(lengths)
    batches, first = [], 0
    while first < len(order):
        longest = max(1, int(lengths[order[first]]))
        end = first + max(1, budget // longest)
        batches.append(order[first:end])
        first = end
    return batches


def num_padding(lengths: np.ndarray, batch_size: int) -> int:
    """Padding tokens if texts in this order went in batches of `batch_size` texts."""
    batches = np.split(lengths, range(batch_size, len(lengths), batch_size))
    return int(sum(batch.max() * len(batch) - batch.sum() for batch in batches if len(batch)))
