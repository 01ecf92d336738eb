"""Long texts -> overlapping windows that fit the model's length.

In:  the characters and word number of each token of a text.
Out: character spans. Cuts fall between words, so that a window alone has the same tokens as in
     its text; a single word longer than a window is cut inside.
"""

from collections.abc import Iterator

import numpy as np

OVERLAP_SHARE = 8  # an eighth of a window repeats at the start of the next


Span = tuple[int, int]


def split_windows(spans: list[Span], words: list[int | None], length: int) -> Iterator[Span]:
    """Character spans of windows of at most `length` tokens.

    spans, words: characters and word number of each token of the whole text.
    """
    num_tokens = len(spans)
    first = 0
    while first < num_tokens:
        end = min(num_tokens, first + length)
        if end < num_tokens:
            end = _find_word_start(words, end, first) or end
        yield spans[first][0], spans[end - 1][1]
        if end == num_tokens:
            return
        back = max(first + 1, end - length // OVERLAP_SHARE)
        first = _find_word_start(words, back, first) or back


def _find_word_start(words: list[int | None], place: int, first: int) -> int | None:
    """The last token in first+1..place that begins a word; None if there is none."""
    while place > first and words[place] is not None and words[place] == words[place - 1]:
        place -= 1
    return place if place > first else None


def pool_windows(vectors: np.ndarray, num_tokens: np.ndarray) -> np.ndarray:
    """One unit vector for all windows of a text: their mean, weighted by tokens."""
    mean = (vectors * num_tokens[:, None]).sum(0, dtype=np.float64) / num_tokens.sum()
    unit: np.ndarray = (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)
    return unit
