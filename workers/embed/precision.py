"""Task: the number format of a worker's device, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sbert_core.choices import Precision
from workers.embed.encoder_config import EncoderConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionProbe:
    """precision: what actors compute in. error: the largest 1 - cosine to a float32 vector."""

    precision: Precision
    error: float | None


EXACT = PrecisionProbe(precision=Precision.FLOAT32, error=None)


def probe_precision(config: EncoderConfig, texts: Sequence[object]) -> PrecisionProbe:
    """Load the model as an actor would, and compare vectors of sample texts with float32.

    Raises ValueError for a format that the device lacks, or that makes no finite vector.
    """
    encoder = config.load()
    if encoder.precision is Precision.FLOAT32:
        return EXACT
    if not texts:
        return PrecisionProbe(precision=encoder.precision, error=None)
    exact = replace(config, precision=Precision.FLOAT32).load()
    wanted, got = (config.encode(own, texts) for own in (exact, encoder))
    if lost := got.reasons.keys() - wanted.reasons.keys():
        raise ValueError(
            f"{len(lost)} of {len(texts)} sampled texts have no finite vector in "
            f"{encoder.precision}; use {_wider(encoder.precision)}"
        )
    known = got.vectors[np.isin(got.document, wanted.document)]
    cos = np.einsum("nd,nd->n", wanted.vectors, known, dtype=np.float64)
    return PrecisionProbe(
        precision=encoder.precision, error=float(np.clip(1 - cos.min(initial=1.0), 0, 2))
    )


def _wider(precision: Precision) -> str:
    """Formats with a larger range: float16 ends at 65,504, bfloat16 where float32 does."""
    wider = [Precision.BFLOAT16] if precision is Precision.FLOAT16 else []
    return " or ".join([*wider, Precision.FLOAT32])
