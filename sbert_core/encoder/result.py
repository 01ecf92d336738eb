"""The result of an encoding: vectors, and counts of texts and tokens."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class TextStatus(StrEnum):
    """How the encoding of a text ended."""

    FINE = "fine"
    TRUNCATED = "truncated"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class EncodeResult:
    """Vectors in input order. An invalid text has a row of NaN and a reason.

    num_tokens, num_lost_tokens: of each text; lost ones were truncated.
    reasons: why a row is invalid, by row.
    distinct_lengths: tokens of each distinct text that passed the model.
    """

    vectors: np.ndarray
    num_tokens: np.ndarray
    num_lost_tokens: np.ndarray
    reasons: dict[int, str]
    distinct_lengths: np.ndarray
    num_unknown_tokens: int

    def status(self, row: int) -> TextStatus:
        """Fine, truncated or invalid (then `reasons[row]` has the reason)."""
        if row in self.reasons:
            return TextStatus.INVALID
        return TextStatus.TRUNCATED if self.num_lost_tokens[row] else TextStatus.FINE

    @property
    def num_distinct(self) -> int:
        """Texts that passed the model; each distinct text does once."""
        return len(self.distinct_lengths)

    @property
    def num_truncated(self) -> int:
        """Texts longer than the model's length."""
        return int(np.count_nonzero(self.num_lost_tokens))

    @property
    def num_encoded_tokens(self) -> int:
        """Tokens that passed the model."""
        return int(self.distinct_lengths.sum())

    @property
    def num_saved_tokens(self) -> int:
        """Tokens of repeated texts, whose vectors were copied."""
        return int(self.num_tokens.sum()) - self.num_encoded_tokens

    @property
    def unknown_share(self) -> float:
        """Share of tokens that are not in the vocabulary."""
        return self.num_unknown_tokens / max(1, self.num_encoded_tokens)
