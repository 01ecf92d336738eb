"""Measurements of an encoder on this machine.

In:  an encoder, and for speed a sample of texts.
Out: whether a vector's bits are independent of its batch; the fastest token budget.
"""

import time
from collections.abc import Sequence

import numpy as np

from sbert_core.encoder.batching import Batch
from sbert_core.encoder.encode import BatchEncoder, encode_texts, restore_torch_threads

PROBED_LENGTHS = (3, 4, 7, 12, 20, 33, 65, 100, 12, 20, 33, 65, 256)
NUM_ROUNDS = 2
CHARS_PER_TOKEN = 4


def is_batch_invariant(encoder: BatchEncoder, vocab_size: int, max_length: int) -> bool:
    """Are vectors of made-up texts equal bit for bit alone, all together and in other batches?"""
    lengths = [min(length, max_length) for length in PROBED_LENGTHS]
    ids = [
        (np.arange(length) + number) * 7919 % vocab_size for number, length in enumerate(lengths)
    ]

    def vectors(chosen: Sequence[int]) -> np.ndarray:
        longest_first = sorted(chosen, key=lambda text: -lengths[text])
        batch = Batch.of(np.array(longest_first), [ids[text] for text in longest_first])
        by_text = dict(zip(longest_first, encoder.encode_batch(batch, True, 0), strict=True))
        return np.stack([by_text[text] for text in chosen])

    everything = range(len(ids))
    with restore_torch_threads():
        together = vectors(everything)
        alone = [[text] for text in everything]
        batches = alone + [everything[0::2], everything[1::3], everything[-2:]]
        return all(np.array_equal(together[list(few)], vectors(few)) for few in batches)


def fastest_budget(
    encoder: BatchEncoder, texts: Sequence[object], candidates: Sequence[int]
) -> int | None:
    """The candidate that encodes the first texts fastest; None if they are too few to measure."""
    sample = _first_texts(texts, num_tokens=2 * max(candidates) * encoder.num_parallel)
    if sample is None:
        return None
    seconds = dict.fromkeys(candidates, float("inf"))
    before = encoder.token_budget
    try:
        for _ in range(NUM_ROUNDS):
            for candidate in candidates:
                encoder.token_budget = candidate
                start = time.perf_counter()
                encode_texts(encoder, sample)
                seconds[candidate] = min(seconds[candidate], time.perf_counter() - start)
    finally:
        encoder.token_budget = before
    return min(candidates, key=lambda candidate: (seconds[candidate], candidate))


def _first_texts(texts: Sequence[object], num_tokens: int) -> list[str] | None:
    """The first distinct texts with about `num_tokens` tokens; None if all have fewer."""
    chosen: dict[str, None] = {}
    for text in texts:
        if isinstance(text, str) and text not in chosen:
            chosen[text] = None
            num_tokens -= max(1, len(text) // CHARS_PER_TOKEN)
            if num_tokens <= 0:
                return list(chosen)
    return None
