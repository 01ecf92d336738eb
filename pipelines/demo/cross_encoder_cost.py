"""The cost that motivates sentence vectors: all pairs of sentences with and without them.

In:  sentences, and an encoder.
Out: measured seconds for vectors and all pairs of them; an estimate for a cross-encoder of the same
     size, from the pairs it scores in a few seconds.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.encoder import Encoder
from sbert_core.join.bounded import JoinBlock, PcaRotation, cosine_join

THRESHOLD = 0.9
SAMPLED_PAIRS = 192
ROTATION_ROWS = 2048  # the basis of the join is fitted to these


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEncoderCost:
    """Seconds for all pairs of sentences.

    encoder_seconds: by vectors, measured. cross_seconds: by a cross-encoder, estimated from
    `sampled` pairs.
    """

    sentences: int
    pairs: int
    encoder_seconds: float
    cross_seconds: float
    sampled: int


def measure_cost(sentences: Sequence[str], model: Path) -> CrossEncoderCost:
    """Compare both ways on the same sentences. model: folder of the encoder."""
    num_pairs = len(sentences) * (len(sentences) - 1) // 2
    rng = np.random.default_rng(0)
    encoder_seconds = _time_join(sentences, model, rng)
    pairs = rng.integers(0, len(sentences), (SAMPLED_PAIRS, 2)).tolist()
    # A head of random weights is as fast as a trained one.
    cross = CrossEncoder.load(model, num_outputs=1)
    cross.predict([(sentences[0], sentences[1])])  # the first call pays for set-up
    start = time.perf_counter()
    cross.predict([(sentences[a], sentences[b]) for a, b in pairs])
    seconds_per_pair = (time.perf_counter() - start) / SAMPLED_PAIRS
    return CrossEncoderCost(
        sentences=len(sentences),
        pairs=num_pairs,
        encoder_seconds=encoder_seconds,
        cross_seconds=seconds_per_pair * num_pairs,
        sampled=SAMPLED_PAIRS,
    )


def _time_join(sentences: Sequence[str], model: Path, rng: np.random.Generator) -> float:
    """Seconds to encode the sentences and to find all pairs above the threshold."""
    encoder = Encoder.load(model)
    start = time.perf_counter()
    vectors = encoder.encode(list(sentences))
    sample = rng.choice(len(vectors), min(ROTATION_ROWS, len(vectors)), replace=False)
    block = JoinBlock.build(vectors, PcaRotation.fit(vectors[sample], THRESHOLD))
    for _ in cosine_join(block, block, THRESHOLD, is_same=True):
        pass
    return time.perf_counter() - start
