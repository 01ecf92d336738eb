"""The result of an encoding: vectors, and counts of texts and tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

LONGEST_QUOTE = 60


class TextStatus(StrEnum):
    """How the encoding of a text ended."""

    FINE = "fine"
    TRUNCATED = "truncated"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Distinct texts that were passed to the model, in order.

    reasons: why a text has no vector but a row of NaN. num_tokens: 0 where it did not pass the
    model.
    """

    vectors: np.ndarray
    num_tokens: np.ndarray
    num_lost_tokens: np.ndarray
    reasons: dict[int, str]
    num_unknown_tokens: int

    @property
    def unknown_share(self) -> float:
        """Share of tokens that are not in the vocabulary."""
        return self.num_unknown_tokens / max(1, int(self.num_tokens.sum()))


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


def suggest_wider_format(encoded: EncodedTexts) -> EncodedTexts:
    """The result of a float16 encoder, with a remedy for texts whose vectors are not finite.

    float16 ends at 65,504; bfloat16 reaches as far as float32. Not every GPU has it.
    """
    reasons = {
        # A text that has tokens passed the model, so that its vector is what is wrong.
        text: f"{why} in float16; use bfloat16 or float32" if encoded.num_tokens[text] else why
        for text, why in encoded.reasons.items()
    }
    return replace(encoded, reasons=reasons)


def require_vectors(encoded: EncodeResult, texts: Sequence[object]) -> np.ndarray:
    """The vectors, where each text must have one; ValueError quotes one that has none."""
    if not encoded.reasons:
        return encoded.vectors
    row, reason = next(iter(encoded.reasons.items()))
    quote = repr(texts[row])[:LONGEST_QUOTE]
    raise ValueError(
        f"{len(encoded.reasons)} of {len(texts)} texts have no vector, such as {quote} ({reason}); "
        "remove them, or use a model or precision that encodes them"
    )
