"""Long texts -> overlapping windows the model can see whole.

In:  a text and its tokens' places in it.
Out: character spans. Cuts fall between words, so that a window alone has the same tokens as in
     its text; a single word longer than a window is cut inside.
"""

from collections.abc import Iterator
from enum import StrEnum

import numpy as np

OVERLAP_SHARE = 8  # an eighth of a window repeats at the start of the next


class Long(StrEnum):
    """What becomes of a text longer than the model's length."""

    TRUNCATE = "truncate"
    POOL = "pool"
    CHUNKS = "chunks"


Span = tuple[int, int]


def windows_of(spans: list[Span], words: list[int | None], length: int) -> Iterator[Span]:
    """Character spans of windows of at most `length` tokens.

    spans, words: of each token of the whole text, its characters and its word.
    """
    num_tokens = len(spans)
    first = 0
    while first < num_tokens:
        end = min(num_tokens, first + length)
        if end < num_tokens:
            end = _word_start(words, end, first) or end
        yield spans[first][0], spans[end - 1][1]
        if end == num_tokens:
            return
        back = max(first + 1, end - length // OVERLAP_SHARE)
        first = _word_start(words, back, first) or back


def _word_start(words: list[int | None], place: int, first: int) -> int | None:
    """The last place not after `place` and after `first` where a word begins."""
    while place > first and words[place] is not None and words[place] == words[place - 1]:
        place -= 1
    return place if place > first else None


def pooled(vectors: np.ndarray, num_tokens: np.ndarray) -> np.ndarray:
    """One vector for all windows of a text: their mean by tokens, of length one again."""
    mean = (vectors * num_tokens[:, None]).sum(0, dtype=np.float64) / num_tokens.sum()
    return (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)
