"""Training on the flat path: states and gradients are those of the padded Hugging Face forward."""

from itertools import product

import numpy as np
import pytest
import torch
from support.encoders import FLAT_FAMILIES, LAYER_FAMILIES, tiny_model
from support.speed import cases

from sbert_core.encoder.backbone import PaddedBackbone, choose_backbone
from sbert_core.encoder.batching import Batch, sort_longest_first

PAD = 1


def batch_of(lengths, seed=0):
    rng = np.random.default_rng(seed)
    ids = [rng.integers(5, 150, length) for length in lengths]
    order = sort_longest_first(np.array(lengths))
    return Batch.of(order, [ids[i] for i in order])


def loss_of(backbone, batch, weight):
    """A number every state of every text has a part in."""
    return sum(((states * weight) ** 2).sum() for _, states in backbone.blocks(batch))


def gradients(model, backbone, batch):
    model.zero_grad()
    weight = torch.linspace(-1, 1, model.config.hidden_size)
    loss = loss_of(backbone, batch, weight)
    loss.backward()
    return loss.item(), {n: w.grad for n, w in model.named_parameters() if w.grad is not None}


@pytest.mark.parametrize(
    ("family", "lengths"),
    cases(
        product(FLAT_FAMILIES, [[9], [5, 5, 5], [30, 3, 17, 16, 9, 30, 2]]),
        lambda family, lengths: family in LAYER_FAMILIES or len(lengths) > 3,
    ),
)
def test_gradients_without_dropout(family, lengths):
    model = tiny_model(family).eval()
    batch = batch_of(lengths)
    flat = choose_backbone(model, PAD, 64)
    assert flat.layout == "flat"
    mine = gradients(model, flat, batch)
    theirs = gradients(model, PaddedBackbone(model, PAD), batch)
    assert mine[0] == pytest.approx(theirs[0], rel=1e-5)
    largest = max(gradient.abs().max() for gradient in theirs[1].values())
    for name, gradient in theirs[1].items():
        torch.testing.assert_close(mine[1][name], gradient, rtol=1e-3, atol=1e-5 * largest)


@pytest.mark.parametrize("family", LAYER_FAMILIES)
def test_dropout_acts_in_training_alone_and_follows_the_seed(family):
    model = tiny_model(family)
    batch = batch_of([12, 7, 7])
    flat = choose_backbone(model, PAD, 64)

    def states(seed):
        torch.manual_seed(seed)
        return torch.cat([x.flatten() for _, x in flat.blocks(batch)]).detach()

    calm = states(0)
    assert torch.equal(calm, states(1))
    model.train()
    assert torch.equal(states(0), states(0))
    assert not torch.equal(states(0), states(1))
    model.eval()
    assert torch.equal(calm, states(2))


def test_dropout_is_where_the_family_has_it():
    """With every kind of dropout at 1, each place it stands in silences its branch."""
    model = tiny_model("bert").train()
    batch = batch_of([6, 4])
    for layer in model.encoder.layer:
        layer.attention.output.dropout.p = 1.0
        layer.output.dropout.p = 1.0
    model.embeddings.dropout.p = 0.0
    flat, padded = choose_backbone(model.eval(), PAD, 64), PaddedBackbone(model, PAD)
    model.train()
    mine = torch.cat([x.flatten() for _, x in flat.blocks(batch)])
    theirs = torch.cat([x.flatten() for _, x in padded.blocks(batch)])
    torch.testing.assert_close(mine, theirs)
