"""Small data and learners for tests of training."""

import numpy as np
import torch

from sbert_core.encoder import Encoder
from sbert_core.training.base_model import starting_parts
from sbert_core.training.bi_encoder import Siamese
from sbert_core.training.distributed import World
from sbert_core.training.examples import ExampleFormat
from sbert_core.training.loop import Loop, Recipe
from sbert_core.training.losses import OBJECTIVES, SoftmaxHead, objective_of
from sbert_core.training.sampler import Order
from support.embedding import sentences

NUM_CLASSES = 3


def rows_for(objective: str, number: int, seed: int = 0):
    """Texts role by role, and labels as the objective's format has them."""
    kind = ExampleFormat(OBJECTIVES[objective])
    roles = 3 if kind in (ExampleFormat.TRIPLETS, ExampleFormat.RANKING) else 2
    texts = sentences(number * roles, seed=seed, longest=12)
    if kind is ExampleFormat.RANKING:  # an answer and a query again, in another rank's shard
        texts[-roles + 1], texts[-2 * roles] = texts[1], texts[roles]
    rng = np.random.default_rng(seed)
    labels = {
        ExampleFormat.PAIRS: rng.integers(0, NUM_CLASSES, number),
        ExampleFormat.SCORED: rng.random(number).astype(np.float32),
    }.get(kind)
    return [texts[role::roles] for role in range(roles)], labels


def loop_of(folder, objective, rows, shard_rows, *, world=World(), dropout=0.0, seed=3, **recipe):  # noqa: B008
    """A loop over rows cut into shards; batch_size is the recipe's word for rows per rank."""
    torch.manual_seed(0)
    encoder = Encoder(starting_parts(folder, None, None, 0), threads=1)
    for module in encoder.network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    head = SoftmaxHead(encoder.dim, NUM_CLASSES) if objective == "softmax" else None
    learner = Siamese(encoder, objective_of(objective), head, world)
    order = Order(
        shard_rows=tuple(shard_rows),
        world_size=world.size,
        batch_size=recipe.pop("batch_size", 4),
        seed=seed,
    )
    texts, labels = rows
    ends = np.cumsum(shard_rows)

    def read(shard):
        part = slice(ends[shard] - shard_rows[shard], ends[shard])
        return learner.examples(
            [role[part] for role in texts], None if labels is None else labels[part]
        )

    return Loop(learner, order, Recipe(lr=1e-3, **recipe), world, read)


def losses_and_gradients(loop):
    """Of every step; gradients as the optimiser sees them."""
    gradients = []
    named = list(loop.learner.named_parameters())

    def keep(*_):
        gradients.append({n: w.grad.clone() for n, w in named if w.grad is not None})

    loop.optimizer.register_step_pre_hook(keep)
    return [report.loss for report in loop.run()], gradients


def weights(loop):
    return {name: value.clone() for name, value in loop.learner.state_dict().items()}
