"""What an encoding gave: vectors, and the account of every text and token."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class TextStatus(StrEnum):
    """What became of a text."""

    FINE = "fine"
    TRUNCATED = "truncated"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Encoded:
    """Vectors in input order. An invalid text has a row of NaN and a reason."""

    vectors: np.ndarray
    num_tokens: np.ndarray
    num_lost_tokens: np.ndarray
    reasons: dict[int, str]
    distinct_lengths: np.ndarray
    num_unknown_tokens: int

    def status(self, row: int) -> TextStatus:
        """Fine, truncated or invalid; `reasons[row]` says why a text is invalid."""
        if row in self.reasons:
            return TextStatus.INVALID
        return TextStatus.TRUNCATED if self.num_lost_tokens[row] else TextStatus.FINE

    @property
    def num_distinct(self) -> int:
        """Texts that went through the model."""
        return len(self.distinct_lengths)

    @property
    def num_truncated(self) -> int:
        return int(np.count_nonzero(self.num_lost_tokens))

    @property
    def num_encoded_tokens(self) -> int:
        """Tokens that went through the model."""
        return int(self.distinct_lengths.sum())

    @property
    def num_saved_tokens(self) -> int:
        """Tokens of repeated texts, which received their vector without the model."""
        return int(self.num_tokens.sum()) - self.num_encoded_tokens

    @property
    def unknown_share(self) -> float:
        """Share of tokens the vocabulary has no entry for."""
        return self.num_unknown_tokens / max(1, self.num_encoded_tokens)
