"""Long texts: memory grows with their length, not with its square."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sbert_core.encoder.attention import FlatTexts
from sbert_core.encoder.batching import Group
from sbert_core.encoder.bfloat16_attention import SCORES_AT_ONCE, bfloat16_attention, text_chunks
from sbert_core.encoder.interface_model import VisibleTokens, _run_flat, attend

LENGTH, HEADS, DIM = 1500, 4, 8


class LargestTensor(TorchDispatchMode):
    """The largest number of values of any tensor that is made inside."""

    values = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **kwargs or {})
        sizes = [leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        self.values = max([self.values, *sizes])
        return made


@pytest.fixture
def projections():
    """Queries, keys and values of a long text and of a short one behind it."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, LENGTH + 7, HEADS, DIM, generator=generator)


GROUPS = (Group(0, 0, 1, LENGTH), Group(1, LENGTH, 1, 7))


def reference(projections, group, mask=None):
    own = projections[:, None, group.tokens].transpose(2, 3)
    return F.scaled_dot_product_attention(*own, attn_mask=mask)[0].transpose(0, 1)


@pytest.mark.parametrize("has_bias", [False, True])
def test_bfloat16_attention_takes_a_long_text_in_blocks(projections, has_bias):
    bias = torch.randn(1, HEADS, LENGTH, LENGTH, generator=torch.Generator().manual_seed(1))

    def bias_of(length):
        return bias[:, :, :length, :length]

    half = projections.bfloat16()
    scaled = torch.cat([half[:1] * DIM**-0.5, half[1:]]).permute(1, 0, 2, 3).flatten(1)
    chunks = text_chunks(GROUPS, HEADS)
    with torch.inference_mode(), LargestTensor() as largest:
        context = bfloat16_attention(scaled, chunks, HEADS, bias_of if has_bias else None)
        assert largest.values <= SCORES_AT_ONCE or has_bias  # an offset per score
    for group in GROUPS:
        mask = bias_of(group.length) if has_bias else None
        want = reference(half.float(), group, mask).flatten(1)
        torch.testing.assert_close(context[group.tokens].float(), want, atol=0.03, rtol=0.03)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 100, 700, LENGTH])
def test_attention_of_a_long_text_needs_no_mask_of_its_square(projections, is_causal, window):
    texts = FlatTexts(GROUPS, projections.device)
    query, key, value = (x.transpose(0, 1)[None] for x in projections)
    with torch.inference_mode(), _run_flat(texts), LargestTensor() as largest:
        context, _ = attend(
            torch.nn.Module(), query, key, value, None, sliding_window=window, is_causal=is_causal
        )
        assert largest.values < LENGTH**2 / 2
    rule = VisibleTokens(is_causal, window)
    for group in GROUPS:
        want = reference(projections, group, rule.offsets(group.length, query))
        torch.testing.assert_close(context[0, group.tokens], want, atol=1e-5, rtol=1e-5)
