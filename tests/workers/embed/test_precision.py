"""The trial of a number format on a worker: what it measures, and what it refuses."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from sbert_core.choices import Precision
from workers.embed.precision import EXACT, probe_precision

TEXTS = [f"text {number}" for number in range(20)]


@dataclass(frozen=True)
class FakeConfig:
    """Vectors of a model whose numbers leave a format's range for some texts.

    not_finite: texts without a finite vector, by format. tilt: of all vectors but float32 ones.
    """

    precision: Precision
    not_finite: dict[Precision, set[int]] = field(default_factory=dict)
    tilt: float = 0.1

    def load(self):
        return SimpleNamespace(precision=self.precision)

    def encode(self, encoder, texts):
        bad = self.not_finite.get(encoder.precision, set())
        kept = np.array([number for number in range(len(texts)) if number not in bad], np.int64)
        angle = kept + (0.0 if encoder.precision is Precision.FLOAT32 else self.tilt)
        return SimpleNamespace(
            vectors=np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32),
            document=kept,
            reasons=dict.fromkeys(bad, "the model's output is not finite"),
        )


def test_largest_error_of_the_sample_is_measured():
    found = probe_precision(FakeConfig(Precision.BFLOAT16), TEXTS)
    assert found.precision is Precision.BFLOAT16
    assert found.error == pytest.approx(1 - np.cos(0.1), abs=1e-6)


def test_float32_has_no_error():
    assert probe_precision(FakeConfig(Precision.FLOAT32), TEXTS) == EXACT


@pytest.mark.parametrize("bad", [{3}, set(range(20))])
def test_model_that_leaves_the_range_of_float16_is_refused_with_bfloat16(bad):
    config = FakeConfig(Precision.FLOAT16, {Precision.FLOAT16: bad})
    with pytest.raises(ValueError, match=f"{len(bad)} of 20 .* float16; use bfloat16") as caught:
        probe_precision(config, TEXTS)
    assert "\n" not in str(caught.value)


def test_texts_that_no_format_encodes_are_not_the_format_s_fault():
    bad = {Precision.FLOAT32: {2, 5}, Precision.INT8: {5}}
    found = probe_precision(FakeConfig(Precision.INT8, bad), TEXTS)
    assert found.error == pytest.approx(1 - np.cos(0.1), abs=1e-6)
