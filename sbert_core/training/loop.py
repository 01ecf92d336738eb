"""The training loop of one rank, independent of Ray.

In:  a learner (batches -> losses), the order of rows, a way to read a shard.
Out: a report per step, and trained weights. Between two steps the state can be saved and loaded,
     and the final weights are the same to the last bit (CPU, float32, equal ranks and threads).

The randomness of a step (dropout) is seeded by its number and rank, so there is no random state
to save. Losses are divided by the rows of all ranks: ranks have equal tokens, not equal rows.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sbert_core.threads import prefetch
from sbert_core.training.batch import StepBatch, TokenizedExamples
from sbert_core.training.distributed import ProcessGroup
from sbert_core.training.learner import Learner
from sbert_core.training.sampler import EpochSampler
from sbert_core.training.schedule import learning_rate_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimConfig:
    """Settings of the optimiser. The defaults are the paper's.

    warmup: share of all steps. accumulate: batches per optimiser step.
    """

    epochs: int = 1
    lr: float = 2e-5
    warmup: float = 0.1
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    accumulate: int = 1
    bf16: bool = False


@dataclass(frozen=True, slots=True)
class StepReport:
    """Loss and counts of one optimiser step: of all ranks, but for `num_own_tokens`."""

    epoch: int
    step: int
    is_epoch_end: bool
    loss: float
    num_rows: int
    num_own_tokens: int


class LoopState(TypedDict):
    """A loop between two steps, as it is saved in a checkpoint."""

    learner: dict[str, Tensor]
    optimizer: dict[str, object]
    epoch: int
    step: int


class TrainLoop:
    """The optimiser steps of one rank, from the current step to the end.

    read_shard: the tokenised examples of a shard, by its number.
    """

    def __init__(
        self,
        learner: Learner,
        sampler: EpochSampler,
        config: OptimConfig,
        group: ProcessGroup,
        read_shard: Callable[[int], TokenizedExamples],
    ) -> None:
        self.learner = learner
        self.sampler = sampler
        self.config = config
        self.group = group
        self.read_shard = read_shard
        self.epoch = self.step = 0
        trained = [weight for weight in learner.parameters() if weight.requires_grad]
        self.device = trained[0].device
        self.optimizer = torch.optim.AdamW(
            trained, lr=config.lr, weight_decay=config.weight_decay, fused=True
        )
        self.wrapped: nn.Module = learner if group.size == 1 else self._wrap_ddp()

    def _wrap_ddp(self) -> DistributedDataParallel:
        """Average gradients over ranks, except that of the token embedding.

        Of the embedding a batch touches few rows; `_average_token_embedding` sends only those.
        """
        embedding = self.learner.token_embedding.weight
        ignored = [name for name, w in self.learner.named_parameters() if w is embedding]
        ignored += [name for name, _ in self.learner.named_buffers()]  # no step changes a buffer
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
            self.learner, ignored
        )
        # With find_unused_parameters DDP never rebuilds its buckets: sums over more than two ranks
        # then have the same bits before and after a restart.
        return DistributedDataParallel(
            self.learner,
            gradient_as_bucket_view=True,
            find_unused_parameters=self.device.type == "cpu",
        )

    @property
    def num_steps(self) -> int:
        """Optimiser steps of one epoch."""
        return -(-self.sampler.num_steps // self.config.accumulate)

    @property
    def is_done(self) -> bool:
        """Have all epochs been trained?"""
        return self.epoch >= self.config.epochs

    def state(self) -> LoopState:
        """Everything a new process needs to continue from here."""
        return {
            "learner": self.learner.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
        }

    def load(self, state: LoopState) -> None:
        """Continue from a saved state."""
        self.learner.load_state_dict(state["learner"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.step = state["epoch"], state["step"]

    def run(self) -> Iterator[StepReport]:
        """Take the remaining steps; yields a report after each.

        Raises FloatingPointError where a gradient is not finite.
        """
        while not self.is_done:
            yield from self._epoch()

    def _epoch(self) -> Iterator[StepReport]:
        epoch = self.epoch
        self.learner.train()
        with contextlib.closing(prefetch(self._windows(epoch, self.step))) as windows:
            for window in windows:
                report = self._take_step(epoch, window)
                self.step += 1
                if report.is_epoch_end:
                    self.epoch, self.step = epoch + 1, 0
                yield report
                self.learner.train()  # the caller may have evaluated it

    def _windows(self, epoch: int, first: int) -> Iterator[list[StepBatch]]:
        """The batches of each optimiser step, tokenised ahead in a thread."""
        number = first * self.config.accumulate
        window: list[StepBatch] = []
        shards: dict[int, TokenizedExamples] = {}
        for pieces in self.sampler.batches(self.group.rank, epoch, number):
            wanted = (
                [s for s, _ in pieces] or list(shards) or self.sampler.shards(self.group.rank)[:1]
            )
            shards = {s: shards[s] if s in shards else self.read_shard(s) for s in wanted}
            if not pieces:  # a stand-in row for a rank that has none in this step
                pieces = [(wanted[0], np.array([0]))]
            parts = [shards[shard].take(rows) for shard, rows in pieces]
            examples = reduce(TokenizedExamples.concat, parts)
            num_rows = self.sampler.step_rows(number)
            window.append(self.learner.batch(examples, self.group.rank, num_rows))
            number += 1
            if len(window) == self.config.accumulate or number == self.sampler.num_steps:
                yield window
                window = []

    def _take_step(self, epoch: int, window: list[StepBatch]) -> StepReport:
        num_rows = sum(sum(batch.num_rows) for batch in window)
        loss = self._backward(epoch, window, num_rows)
        if self.group.size > 1:
            self._average_token_embedding(window)
        self._clip_gradient(epoch)
        done = epoch * self.num_steps + self.step
        factor = learning_rate_factor(done, self.config.epochs * self.num_steps, self.config.warmup)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = self.config.lr * factor
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        total = float(self.group.sum_over_ranks(loss))
        return StepReport(
            epoch=epoch,
            step=self.step,
            is_epoch_end=self.step + 1 == self.num_steps,
            loss=total / (self.group.size if self.learner.is_joint else 1),
            num_rows=num_rows,
            num_own_tokens=sum(batch.num_tokens for batch in window),
        )

    def _backward(self, epoch: int, window: list[StepBatch], num_rows: int) -> Tensor:
        """Accumulate the gradient of a step; returns this rank's part of the loss."""
        loss = torch.zeros((), device=self.device)
        for number, batch in enumerate(window):
            torch.manual_seed(_seed(self.sampler.seed, epoch, self.step, number, self.group.rank))
            is_last = number == len(window) - 1
            with self._gradient_sync(is_last), self._autocast():
                part = self._loss_share(self.wrapped(batch), batch, len(window), num_rows)
                scaled = part * self.group.size  # DDP averages over ranks
                scaled.backward()  # type: ignore[no-untyped-call]
            loss += part.detach()
        return loss

    def _average_token_embedding(self, window: list[StepBatch]) -> None:
        """Average the gradient that DDP ignores, for the tokens of this step."""
        weight = self.learner.token_embedding.weight
        ids = np.unique(np.concatenate([batch.token_ids for batch in window]))
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        self.group.average_rows(weight.grad, torch.from_numpy(ids).to(weight.device))

    def _clip_gradient(self, epoch: int) -> None:
        norm = nn.utils.clip_grad_norm_(self.learner.parameters(), self.config.max_grad_norm)
        if not torch.isfinite(norm):
            raise FloatingPointError(
                f"the gradient of epoch {epoch}, step {self.step} is {norm.item()} at --lr "
                f"{self.config.lr:g}; lower --lr, or look for odd labels and a broken base"
            )

    def _loss_share(
        self, losses: Tensor, batch: StepBatch, num_batches: int, num_rows: int
    ) -> Tensor:
        """This rank's share of the step's loss, from the learner's output for one batch."""
        if self.learner.is_joint:  # the whole loss, but only the own rows are differentiated
            return losses / num_batches
        # A stand-in row has weight 0, but takes part in the backward pass.
        return losses[: batch.num_own].sum() / num_rows + 0.0 * losses.sum()

    def _gradient_sync(self, is_last: bool) -> contextlib.AbstractContextManager[None]:
        """Gradients are sent once per step, with its last batch."""
        if is_last or not isinstance(self.wrapped, DistributedDataParallel):
            return contextlib.nullcontext()
        return self.wrapped.no_sync()

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.bf16)


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
