"""One rank's steps, free of Ray.

In:  a learner (batches -> losses), the order of rows, a way to read a shard.
Out: a better learner, step by step; between two steps it can be saved and taken up again, and the
     weights at the end are the same to the last bit (CPU, float32, equal ranks and threads).

What is random in a step (dropout) is seeded by its number and rank, so there is no random state
to save. Losses are divided by the rows of all ranks: ranks hold equal tokens, not equal rows.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sbert_core.threads import ahead
from sbert_core.training.batch import Examples, StepBatch
from sbert_core.training.distributed import World
from sbert_core.training.learner import Learner
from sbert_core.training.sampler import Order
from sbert_core.training.schedule import rate_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How weights move. The defaults are the paper's."""

    epochs: int = 1
    lr: float = 2e-5
    warmup: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    accumulate: int = 1
    bf16: bool = False


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did, over all ranks."""

    epoch: int
    step: int
    is_epoch_end: bool
    loss: float
    num_rows: int
    num_own_tokens: int


class Loop:
    """The training of one rank, from wherever it stands to the end."""

    def __init__(
        self,
        learner: Learner,
        order: Order,
        recipe: Recipe,
        world: World,
        read_shard: Callable[[int], Examples],
    ) -> None:
        self.learner = learner
        self.order = order
        self.recipe = recipe
        self.world = world
        self.read_shard = read_shard
        self.epoch = self.step = 0
        trained = [weight for weight in learner.parameters() if weight.requires_grad]
        self.device = trained[0].device
        self.optimizer = torch.optim.AdamW(
            trained, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True
        )
        self.wrapped: nn.Module = learner
        if world.size > 1:
            words = [n for n, w in learner.named_parameters() if w is learner.words.weight]
            still = [name for name, _ in learner.named_buffers()]  # tables that no step changes
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
                learner, words + still
            )
            # With unused parameters looked for, DDP keeps its buckets as they are: sums over more
            # than two ranks then have the same bits before and after a restart.
            self.wrapped = DistributedDataParallel(
                learner,
                gradient_as_bucket_view=True,
                find_unused_parameters=self.device.type == "cpu",
            )

    @property
    def num_steps(self) -> int:
        """Optimiser steps of one epoch."""
        return -(-self.order.num_steps // self.recipe.accumulate)

    @property
    def is_done(self) -> bool:
        return self.epoch >= self.recipe.epochs

    def state(self) -> dict[str, Any]:
        """Everything a new process needs to go on from here."""
        return {
            "learner": self.learner.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.learner.load_state_dict(state["learner"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.step = state["epoch"], state["step"]

    def run(self) -> Iterator[StepReport]:
        """Take all steps that are left, and say so after each."""
        while not self.is_done:
            yield from self._epoch()

    def _epoch(self) -> Iterator[StepReport]:
        epoch = self.epoch
        self.learner.train()
        with contextlib.closing(ahead(self._windows(epoch, self.step))) as windows:
            for window in windows:
                report = self._stepped(epoch, window)
                self.step += 1
                if report.is_epoch_end:
                    self.epoch, self.step = epoch + 1, 0
                yield report
                self.learner.train()  # the caller may have evaluated it

    def _windows(self, epoch: int, first: int) -> Iterator[list[StepBatch]]:
        """The batches of each optimiser step, tokenised ahead in a thread."""
        number = first * self.recipe.accumulate
        window: list[StepBatch] = []
        shards: dict[int, Examples] = {}
        for pieces in self.order.batches(self.world.rank, epoch, number):
            wanted = (
                [s for s, _ in pieces] or list(shards) or self.order.shards(self.world.rank)[:1]
            )
            shards = {s: shards[s] if s in shards else self.read_shard(s) for s in wanted}
            if not pieces:  # a stand-in row for a rank that has none in this step
                pieces = [(wanted[0], np.array([0]))]
            parts = [shards[shard].taken(rows) for shard, rows in pieces]
            examples = reduce(Examples.joined, parts)
            num_rows = self.order.step_rows(number)
            window.append(self.learner.batch(examples, self.world.rank, num_rows))
            number += 1
            if len(window) == self.recipe.accumulate or number == self.order.num_steps:
                yield window
                window = []

    def _stepped(self, epoch: int, window: list[StepBatch]) -> StepReport:
        total = sum(sum(batch.num_rows) for batch in window)
        loss = torch.zeros((), device=self.device)
        for number, batch in enumerate(window):
            torch.manual_seed(_seed(self.order.seed, epoch, self.step, number, self.world.rank))
            is_last = number == len(window) - 1
            with self._synced(is_last), self._autocast():
                part = self._part(self.wrapped(batch), batch, len(window), total)
                (part * self.world.size).backward()  # DDP averages over ranks
            loss += part.detach()
        if self.world.size > 1:
            self._share_words(window)
        norm = nn.utils.clip_grad_norm_(self.learner.parameters(), self.recipe.max_grad_norm)
        if not torch.isfinite(norm):
            raise FloatingPointError(
                f"the gradient of epoch {epoch}, step {self.step} is {norm.item()} at --lr "
                f"{self.recipe.lr:g}; lower --lr, or look for odd labels and a broken base"
            )
        done = epoch * self.num_steps + self.step
        share_of_rate = rate_share(done, self.recipe.epochs * self.num_steps, self.recipe.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr * share_of_rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return StepReport(
            epoch=epoch,
            step=self.step,
            is_epoch_end=self.step + 1 == self.num_steps,
            loss=float(self.world.total(loss)) / (self.world.size if self.learner.is_joint else 1),
            num_rows=total,
            num_own_tokens=sum(batch.num_tokens for batch in window),
        )

    def _share_words(self, window: list[StepBatch]) -> None:
        """What DDP was told to leave alone."""
        weight = self.learner.words.weight
        ids = np.unique(np.concatenate([batch.token_ids for batch in window]))
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        self.world.average_rows(weight.grad, torch.from_numpy(ids).to(weight.device))

    def _part(self, losses: Tensor, batch: StepBatch, num_batches: int, num_rows: int) -> Tensor:
        """What this rank adds to the step's gradient."""
        if self.learner.is_joint:  # the whole loss, but only the own rows are differentiated
            return losses / num_batches
        # A stand-in row counts for nothing, but takes part in the backward pass.
        return losses[: batch.num_own].sum() / num_rows + 0.0 * losses.sum()

    def _synced(self, is_last: bool) -> contextlib.AbstractContextManager:
        """Gradients travel once per step, with its last batch."""
        if is_last or not isinstance(self.wrapped, DistributedDataParallel):
            return contextlib.nullcontext()
        return self.wrapped.no_sync()

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.bf16)


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
