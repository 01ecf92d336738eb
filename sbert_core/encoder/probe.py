"""Facts about an encoder that are found out by trying.

In:  an encoder, and texts where speed is the question.
Out: is a vector's last bit its text's own? which token budget is fastest here?
"""

import time
from collections.abc import Sequence

import numpy as np

from sbert_core.encoder.batching import Batch
from sbert_core.encoder.encode import BatchEncoder, encoded_texts, torch_threads_restored

PROBED_LENGTHS = (3, 4, 7, 12, 20, 33, 65, 100, 12, 20, 33, 65, 256)
NUM_ROUNDS = 2
CHARS_PER_TOKEN = 4


def is_batch_invariant(encoder: BatchEncoder, vocab_size: int, max_length: int) -> bool:
    """Are made-up texts encoded alone, all together and in other company equal bit for bit?"""
    lengths = [min(length, max_length) for length in PROBED_LENGTHS]
    ids = [
        (np.arange(length) + number) * 7919 % vocab_size for number, length in enumerate(lengths)
    ]

    def vectors(chosen: Sequence[int]) -> np.ndarray:
        longest_first = sorted(chosen, key=lambda text: -lengths[text])
        batch = Batch.of(np.array(longest_first), [ids[text] for text in longest_first])
        by_text = dict(zip(longest_first, encoder.vectors_of(batch, True, 0), strict=True))
        return np.stack([by_text[text] for text in chosen])

    everyone = range(len(ids))
    with torch_threads_restored():
        together = vectors(everyone)
        companies = [[text] for text in everyone] + [everyone[0::2], everyone[1::3], everyone[-2:]]
        return all(np.array_equal(together[list(few)], vectors(few)) for few in companies)


def best_budget(
    encoder: BatchEncoder, texts: Sequence[object], candidates: Sequence[int]
) -> int | None:
    """The candidate that encodes the first texts fastest; None if there are too few to tell."""
    sample = _first_texts(texts, num_tokens=2 * max(candidates) * encoder.num_at_once)
    if sample is None:
        return None
    seconds = dict.fromkeys(candidates, float("inf"))
    before = encoder.token_budget
    try:
        for _ in range(NUM_ROUNDS):
            for candidate in candidates:
                encoder.token_budget = candidate
                start = time.perf_counter()
                encoded_texts(encoder, sample)
                seconds[candidate] = min(seconds[candidate], time.perf_counter() - start)
    finally:
        encoder.token_budget = before
    return min(candidates, key=lambda candidate: (seconds[candidate], candidate))


def _first_texts(texts: Sequence[object], num_tokens: int) -> list[str] | None:
    """Distinct texts from the front that hold about so many tokens; None if all hold fewer."""
    chosen: dict[str, None] = {}
    for text in texts:
        if isinstance(text, str) and text not in chosen:
            chosen[text] = None
            num_tokens -= max(1, len(text) // CHARS_PER_TOKEN)
            if num_tokens <= 0:
                return list(chosen)
    return None
