"""Small data and learners for tests of training."""

import numpy as np
import torch

from sbert_core.choices import ExampleFormat
from sbert_core.encoder.encoder import Encoder
from sbert_core.training.base_model import load_base_model
from sbert_core.training.bi_encoder import BiEncoderLearner
from sbert_core.training.distributed import ProcessGroup
from sbert_core.training.loop import OptimConfig, TrainLoop
from sbert_core.training.losses import OBJECTIVES, SoftmaxHead, make_objective
from sbert_core.training.sampler import EpochSampler
from support.texts import sentences

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


ALONE = ProcessGroup()


def loop_of(folder, objective, rows, shard_rows, *, group=ALONE, dropout=0.0, seed=3, **options):
    """A loop over rows cut into shards; `options` are batch_size and those of OptimConfig."""
    torch.manual_seed(0)
    encoder = Encoder(load_base_model(folder, None, None, 0), threads=1)
    for module in encoder.network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    head = SoftmaxHead(encoder.dim, NUM_CLASSES) if objective == "softmax" else None
    learner = BiEncoderLearner(encoder, make_objective(objective), head, group)
    sampler = EpochSampler(
        shard_rows=tuple(shard_rows),
        world_size=group.size,
        batch_size=options.pop("batch_size", 4),
        seed=seed,
    )
    texts, labels = rows
    ends = np.cumsum(shard_rows)

    def read(shard):
        part = slice(ends[shard] - shard_rows[shard], ends[shard])
        return learner.examples(
            [role[part] for role in texts], None if labels is None else labels[part]
        )

    return TrainLoop(learner, sampler, OptimConfig(lr=1e-3, **options), group, read)


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
