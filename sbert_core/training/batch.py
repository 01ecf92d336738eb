"""Examples -> token batches a learner takes.

In:  texts of each role, labels, and a tokenizer.
Out: all texts of all roles in one flat batch: one pass through the model per step.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sbert_core.encoder.batching import Batch, longest_first


@dataclass(frozen=True, slots=True)
class Examples:
    """Some rows: token ids of each role's texts, and labels if the objective has them."""

    ids: list[list[np.ndarray]]
    labels: np.ndarray | None

    def taken(self, rows: np.ndarray) -> "Examples":
        return Examples(
            [[role[row] for row in rows.tolist()] for role in self.ids],
            None if self.labels is None else self.labels[rows],
        )

    def joined(self, other: "Examples") -> "Examples":
        labels = None
        if self.labels is not None and other.labels is not None:
            labels = np.concatenate([self.labels, other.labels])
        return Examples([a + b for a, b in zip(self.ids, other.ids, strict=True)], labels)


def token_keys(ids: list[list[np.ndarray]]) -> np.ndarray:
    """64 bits for each text, rows x roles: equal for those that the model cannot tell apart."""
    digests = [
        hashlib.blake2b(text.astype("<i8").tobytes(), digest_size=8).digest()
        for row in zip(*ids, strict=True)
        for text in row
    ]
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64).reshape(-1, len(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch(ABC):
    """One rank's rows of one step.

    num_rows: of every rank; one that has none gets a stand-in row, which counts for nothing.
    """

    rank: int
    num_rows: list[int]

    @property
    def num_own(self) -> int:
        return self.num_rows[self.rank]

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    @abstractmethod
    def token_ids(self) -> np.ndarray:
        """Of all texts, end to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBatch(StepBatch):
    """Texts of all roles, the longest first; `place[role * rows + row]` is where one stands."""

    texts: Batch
    place: np.ndarray
    num_roles: int
    labels: np.ndarray | None

    @property
    def token_ids(self) -> np.ndarray:
        return self.texts.ids_T

    @classmethod
    def of(cls, examples: Examples, rank: int, num_rows: list[int]) -> "TextBatch":
        ids = [text for role in examples.ids for text in role]
        order = longest_first(np.array([len(text) for text in ids]))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        texts = Batch.of(order, [ids[number] for number in order.tolist()])
        return cls(
            texts=texts,
            place=place,
            num_roles=len(examples.ids),
            labels=examples.labels,
            rank=rank,
            num_rows=num_rows,
        )
