"""The paper's reason to be: all pairs of sentences by a cross-encoder and by sentence vectors.

In:  sentences, and an encoder.
Out: measured seconds for vectors and all pairs of them; an estimate for a cross-encoder of the same
     size, from the pairs it scores in a few seconds.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_core.encoder import Encoder
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.join.bounded import Block, Turn, joined

THRESHOLD = 0.9
SAMPLED_PAIRS = 192


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """encoder_seconds: measured. cross_seconds: estimated from `sampled` pairs."""

    sentences: int
    pairs: int
    encoder_seconds: float
    cross_seconds: float
    sampled: int

    def __str__(self) -> str:
        return (
            f"all {self.pairs:,} pairs of {self.sentences:,} sentences: by vectors "
            f"{self.encoder_seconds:,.1f} s, measured; by a cross-encoder of the same size "
            f"{self.cross_seconds / 3600:,.1f} h, estimated from {self.sampled} pairs"
        )


def compared(sentences: Sequence[str], model: Path) -> Comparison:
    encoder = Encoder.load(model)
    start = time.perf_counter()
    vectors = encoder.encode(list(sentences))
    rng = np.random.default_rng(0)
    turn = Turn.of(
        vectors[rng.choice(len(vectors), min(2048, len(vectors)), replace=False)], THRESHOLD
    )
    block = Block.of(vectors, turn)
    for _ in joined(block, block, THRESHOLD, is_same=True):
        pass
    encoder_seconds = time.perf_counter() - start
    number = len(sentences) * (len(sentences) - 1) // 2
    places = rng.integers(0, len(sentences), (SAMPLED_PAIRS, 2)).tolist()
    # A head of random weights is as fast as a trained one.
    cross = CrossEncoder.load(model, num_outputs=1)
    cross.predict([(sentences[0], sentences[1])])  # the first call pays for set-up
    start = time.perf_counter()
    cross.predict([(sentences[a], sentences[b]) for a, b in places])
    per_pair = (time.perf_counter() - start) / SAMPLED_PAIRS
    return Comparison(
        sentences=len(sentences),
        pairs=number,
        encoder_seconds=encoder_seconds,
        cross_seconds=per_pair * number,
        sampled=SAMPLED_PAIRS,
    )
