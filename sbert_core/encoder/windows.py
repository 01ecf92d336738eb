"""Texts -> windows of tokens: the half of encoding that needs a tokenizer and no model.

In:  texts of any kind.
Out: each distinct valid text once, and the tokens of some thousand of them at a time. It may run in
     another process than the model.

A window is large enough that sorting by length inside it leaves little to gain, and small enough
that a corpus of any size fits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sbert_core.arrays import Int64Array
from sbert_core.encoder.result import EncodedTexts, EncodeResult
from sbert_core.encoder.tokenizer import TokenTable
from sbert_core.text import invalid_reason
from sbert_core.threads import map_ahead

# The larger a window, the more texts share a length and with it an attention call.
WINDOW_TEXTS = 4096
WINDOW_CHARS = 8_000_000
# While Python puts the ids of a window into an array, the tokenizer has the other cores for the
# next one. A static model waits for little else: 0.79 of the bare tokenizer's speed with one.
WINDOWS_AHEAD = 2


class Tokenizes(Protocol):
    """The part of an encoder, or of its tokenizer, that windows need."""

    def tokenize(self, texts: list[str]) -> TokenTable:
        """Token ids of valid texts."""
        ...


@dataclass(frozen=True, slots=True)
class DistinctTexts:
    """Rows of text by the distinct texts in them.

    number: of each row's text, -1 for an invalid one; reasons: why it is, by row.
    """

    number: Int64Array
    reasons: dict[int, str]

    @classmethod
    def find(cls, texts: Sequence[object]) -> "tuple[DistinctTexts, list[str]]":
        """The distinct texts in the order of their numbers, and which rows have them."""
        reasons = {row: why for row, text in enumerate(texts) if (why := invalid_reason(text))}
        numbers: dict[object, int] = {}
        number = np.array(
            [
                -1 if row in reasons else numbers.setdefault(text, len(numbers))
                for row, text in enumerate(texts)
            ],
            dtype=np.int64,
        )
        # A StrEnum may override __str__.
        return cls(number, reasons), [str.__str__(text) for text in numbers]

    def spread(self, encoded: EncodedTexts) -> EncodeResult:
        """What became of each row, from what became of the distinct texts."""
        reasons = dict(self.reasons)
        if encoded.reasons:
            rows = np.flatnonzero(np.isin(self.number, list(encoded.reasons))).tolist()
            reasons |= {row: encoded.reasons[int(self.number[row])] for row in rows}
        return EncodeResult(
            vectors=_scatter(encoded.vectors, self.number, np.nan),
            num_tokens=_scatter(encoded.num_tokens, self.number, 0),
            num_lost_tokens=_scatter(encoded.num_lost_tokens, self.number, 0),
            reasons=dict(sorted(reasons.items())),
            distinct_lengths=encoded.num_tokens[encoded.num_tokens > 0],
            num_unknown_tokens=encoded.num_unknown_tokens,
        )


def _scatter(values: np.ndarray, number: np.ndarray, missing: float) -> np.ndarray:
    """values[number], with `missing` where the number is -1; no copy if nothing repeats."""
    if len(number) == len(values) and np.array_equal(number, np.arange(len(values))):
        return values
    rows = np.full((len(number), *values.shape[1:]), missing, dtype=values.dtype)
    is_known = number >= 0
    rows[is_known] = values[number[is_known]]
    return rows


def token_windows(tokenizer: Tokenizes, texts: list[str], prompt: str = "") -> Iterator[TokenTable]:
    """The tokens of distinct texts, a window after the other, tokenised ahead of their use.

    prompt: goes in front of each text. A text that cannot be encoded has a reason and no tokens.
    """
    prompt_alone = tokenizer.tokenize([prompt]).ids_T

    def tokenize(window: list[str]) -> TokenTable:
        table = tokenizer.tokenize([prompt + text for text in window] if prompt else window)
        return table.without(_dropped(tokenizer, window, table, prompt_alone))

    yield from map_ahead(tokenize, _windows(texts), WINDOWS_AHEAD)


def _windows(texts: list[str]) -> Iterator[list[str]]:
    first, num_chars = 0, 0
    for number, text in enumerate(texts, start=1):
        num_chars += len(text)
        is_full = number - first == WINDOW_TEXTS or num_chars >= WINDOW_CHARS
        if is_full or number == len(texts):
            yield texts[first:number]
            first, num_chars = number, 0


def _dropped(
    tokenizer: Tokenizes, window: list[str], table: TokenTable, prompt_alone: np.ndarray
) -> dict[int, str]:
    """Reasons for texts of which nothing but the prompt is left, by their number in the window."""
    reasons = {}
    suspects = np.flatnonzero(table.lengths == len(prompt_alone))
    ids = table.take(suspects).reshape(len(suspects), len(prompt_alone))
    for number in suspects[(ids == prompt_alone).all(axis=1)].tolist():
        if number in table.reasons:
            continue
        alone, empty = tokenizer.tokenize([window[number], ""]).lengths
        if alone <= empty:  # else the prompt and the text have merged into one token
            reasons[number] = "no tokens: the tokenizer drops every character"
    return reasons
