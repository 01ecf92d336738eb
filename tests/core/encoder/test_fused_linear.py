"""Fused linear layers against plain torch."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers.activations import ACT2FN

from sbert_core.encoder.fused_linear import FusedLinear


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return nn.Linear(48, 96)


@torch.inference_mode()
def test_fused_linear_matches_plain_torch(linear):
    fused, x, residual = FusedLinear(linear), torch.randn(70, 48), torch.randn(70, 96)
    plain = F.linear(x, linear.weight, linear.bias)
    torch.testing.assert_close(fused(x), plain)
    torch.testing.assert_close(fused.with_residual(x, residual), residual + plain)
    for name in ("gelu", "gelu_new", "relu"):
        torch.testing.assert_close(fused.with_activation(x, ACT2FN[name]), ACT2FN[name](plain))


@torch.inference_mode()
def test_fused_linear_row_has_the_same_bits_in_any_company(linear):
    fused, x = FusedLinear(linear), torch.randn(1024, 48)
    every = fused.with_activation(x, ACT2FN["gelu"])
    for num_rows in (2, 31, 64, 500, 1023):
        assert torch.equal(fused.with_activation(x[:num_rows], ACT2FN["gelu"]), every[:num_rows])


@pytest.mark.parametrize("is_fused", [False, True])
def test_fused_linear_follows_a_trained_weight(linear, is_fused):
    fused, x = FusedLinear(linear), torch.randn(70, 48)
    with torch.no_grad():
        before = fused(x)
    optimizer = torch.optim.AdamW(linear.parameters(), lr=0.1, fused=is_fused)
    fused(x).square().sum().backward()
    optimizer.step()
    with torch.no_grad():
        after = fused(x)
        torch.testing.assert_close(after, linear(x))
    assert (after - before).abs().max() > 0.1


def test_fused_linear_under_autograd_has_gradients(linear):
    fused, x, residual = FusedLinear(linear), torch.randn(70, 48), torch.randn(70, 96)
    fused.with_residual(
        fused.with_activation(x, ACT2FN["gelu"]) @ torch.ones(96, 48), residual
    ).sum().backward()
    assert linear.weight.grad is not None
