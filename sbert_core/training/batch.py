"""Tokenised examples -> the batch of one training step.

In:  token ids of the texts of each role (anchor, positive ...), and labels.
Out: all texts of all roles in one flat batch: one pass through the model per step.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sbert_core.encoder.batching import Batch, sort_longest_first


@dataclass(frozen=True, slots=True)
class TokenizedExamples:
    """Token ids of each role's texts (role x row), and labels if the objective has them."""

    ids: list[list[np.ndarray]]
    labels: np.ndarray | None

    def take(self, rows: np.ndarray) -> "TokenizedExamples":
        """These rows, in this order."""
        return TokenizedExamples(
            [[role[row] for row in rows.tolist()] for role in self.ids],
            None if self.labels is None else self.labels[rows],
        )

    def concat(self, other: "TokenizedExamples") -> "TokenizedExamples":
        """The rows of both."""
        labels = None
        if self.labels is not None and other.labels is not None:
            labels = np.concatenate([self.labels, other.labels])
        return TokenizedExamples([a + b for a, b in zip(self.ids, other.ids, strict=True)], labels)


def token_keys(ids: list[list[np.ndarray]]) -> np.ndarray:
    """64-bit hashes of token ids, rows x roles: equal for texts that are equal to the model."""
    digests = [
        hashlib.blake2b(text.astype("<i8").tobytes(), digest_size=8).digest()
        for row in zip(*ids, strict=True)
        for text in row
    ]
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64).reshape(-1, len(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch(ABC):
    """One rank's rows of one step.

    num_rows: of every rank; a rank without rows gets a stand-in row with weight 0.
    """

    rank: int
    num_rows: list[int]

    @property
    def num_own(self) -> int:
        """Rows of this rank."""
        return self.num_rows[self.rank]

    @property
    def num_tokens(self) -> int:
        """Tokens of this rank."""
        return len(self.token_ids)

    @property
    @abstractmethod
    def token_ids(self) -> np.ndarray:
        """Token ids of all texts, end to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBatch(StepBatch):
    """Texts of all roles, longest first; `position[role * rows + row]` is where each stands."""

    texts: Batch
    position: np.ndarray
    num_roles: int
    labels: np.ndarray | None

    @property
    def token_ids(self) -> np.ndarray:
        """Token ids of all texts, end to end."""
        return self.texts.ids_T

    @classmethod
    def of(cls, examples: TokenizedExamples, rank: int, num_rows: list[int]) -> "TextBatch":
        """The batch of this rank's examples; `num_rows` of every rank."""
        ids = [text for role in examples.ids for text in role]
        order = sort_longest_first(np.array([len(text) for text in ids]))
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        texts = Batch.of(order, [ids[number] for number in order.tolist()])
        return cls(
            texts=texts,
            position=position,
            num_roles=len(examples.ids),
            labels=examples.labels,
            rank=rank,
            num_rows=num_rows,
        )
