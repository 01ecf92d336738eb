"""Texts for tests, of words that the tiny tokenizer has."""

import random

from support.encoders import WORDS


def sentences(number: int, seed: int = 0, longest: int = 30) -> list[str]:
    """Distinct word salads of skewed lengths."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < number:
        length = 2 + int(rng.random() ** 3 * longest)
        found[f"{' '.join(rng.choices(WORDS, k=length))} {len(found)}"] = None
    return list(found)
