"""Each pooling against a short numpy reference, prompt left out or not."""

import numpy as np
import pytest
import torch
from support.references import POOLING_REFERENCES

from sbert_core.choices import Pooling
from sbert_core.encoder.pooling import pool


@pytest.mark.parametrize("num_skipped", [0, 2])
@pytest.mark.parametrize("mode", list(Pooling))
def test_pool_matches_numpy(mode, num_skipped):
    states = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(0))
    want = [POOLING_REFERENCES[mode](text, num_skipped) for text in states.numpy()]
    np.testing.assert_allclose(pool(states, (mode,), num_skipped), np.stack(want), atol=1e-6)


def test_pool_several_modes_stand_side_by_side():
    states = torch.randn(2, 3, 4)
    both = pool(states, (Pooling.CLS, Pooling.MAX))
    torch.testing.assert_close(both[:, :4], states[:, 0])
    torch.testing.assert_close(both[:, 4:], states.amax(1))


def test_pool_prompt_as_long_as_the_text_leaves_the_last_token():
    states = torch.randn(2, 3, 4)
    torch.testing.assert_close(pool(states, (Pooling.MEAN,), 3), states[:, -1])


def test_pool_half_precision_sums_in_float32():
    states = torch.full((1, 4096, 2), 1.001, dtype=torch.bfloat16)
    assert pool(states, (Pooling.MEAN,)).dtype == torch.float32
    torch.testing.assert_close(pool(states, (Pooling.MEAN,)), states[:, 0].float())
