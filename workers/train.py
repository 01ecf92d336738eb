"""One rank of a training run on Ray Train: shards in, checkpoints and an encoder out.

In:  a TrainJob, and the rank's place among the others (RankContext; Ray's is RayRank).
Out: reports to the context; those of rank 0 carry a checkpoint folder with the loop's state, the
     history, the best weights so far and, at the end, the trained encoder.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray.train
import torch
from ray.train import Checkpoint
from torch import Tensor

from sbert_core.arrays import Float32Array, Int64Array
from sbert_core.choices import ExampleFormat, ObjectiveName
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.encoder import Encoder
from sbert_core.storage import storage_at
from sbert_core.training.base_model import load_base_model
from sbert_core.training.batch import TokenizedExamples
from sbert_core.training.bi_encoder import BiEncoderLearner
from sbert_core.training.cross_encoder import CrossEncoderLearner
from sbert_core.training.dev_eval import DevSet, cross_dev_score, dev_score
from sbert_core.training.distributed import ProcessGroup
from sbert_core.training.history import TrainHistory
from sbert_core.training.loop import LoopState, OptimConfig, TrainLoop
from sbert_core.training.losses import Objective, SoftmaxHead
from sbert_core.training.sampler import EpochSampler
from workers.common.progress_board import ProgressBoard

NOT_TEXT = ("label", "row", "file", "length")
STATE, HISTORY, BEST, ENCODER = "state.pt", "history.json", "best.pt", "encoder"

EncoderLearner = BiEncoderLearner | CrossEncoderLearner
Metrics = dict[str, float | str | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """Everything that is the same for all ranks.

    run: name of the run on the progress board.
    train_files: shards and their rows.
    objective: None trains a cross-encoder.
    classes: of pairs; None for other formats.
    dev_files: shards to score after each epoch; `dev_rows` instead if given.
    checkpoint_steps: optimiser steps between two checkpoints.
    """

    run: str
    shards: str
    kind: ExampleFormat
    train_files: tuple[tuple[str, int], ...]
    dev_files: tuple[str, ...]
    dev_rows: DevSet | None
    classes: tuple[str, ...] | None
    base: str
    objective: Objective | None
    concat: str
    pooling: str | None
    dense: int | None
    max_length: int | None
    recipe: OptimConfig
    batch_size: int
    seed: int
    threads: int
    checkpoint_steps: int

    def make_learner(self, group: ProcessGroup) -> EncoderLearner:
        """The network before its first step: the same on every rank."""
        torch.manual_seed(self.seed)
        if self.objective is None:
            outputs = len(self.classes) if self.classes else 1
            return CrossEncoderLearner(
                CrossEncoder.load(
                    self.base, num_outputs=outputs, max_length=self.max_length, threads=self.threads
                )
            )
        has_head = self.objective.name is ObjectiveName.SOFTMAX
        parts = load_base_model(
            Path(self.base), self.pooling, self.dense, self.seed, with_lengths=has_head
        )
        encoder = Encoder(parts, max_length=self.max_length, threads=self.threads)
        head = None
        if has_head:
            assert self.classes is not None
            torch.manual_seed(self.seed + 1)
            head = SoftmaxHead(encoder.dim, len(self.classes), self.concat).to(encoder.device)
        return BiEncoderLearner(encoder, self.objective, head, group)

    def order(self, world_size: int) -> EpochSampler:
        """The order of rows for so many ranks; ValueError if a rank would have none."""
        return EpochSampler(
            shard_rows=tuple(rows for _, rows in self.train_files),
            world_size=world_size,
            batch_size=self.batch_size,
            seed=self.seed,
        )

    def rows(self, name: str) -> tuple[list[list[str]], Int64Array | Float32Array | None]:
        """Texts role by role and labels of one shard."""
        with pq.ParquetFile(pa.BufferReader(storage_at(self.shards).buffer(name))) as file:
            table = file.read()
        texts = [table[n].to_pylist() for n in table.column_names if n not in NOT_TEXT]
        if self.kind is ExampleFormat.PAIRS:
            return texts, table["label"].to_numpy().astype(np.int64)
        if self.kind is ExampleFormat.SCORED:
            return texts, table["label"].to_numpy().astype(np.float32)
        return texts, None

    def held_out(self) -> DevSet | None:
        """The rows to score after each epoch, if there are any."""
        if self.dev_rows is not None or not self.dev_files:
            return self.dev_rows
        shards = [self.rows(name) for name in self.dev_files]
        roles = zip(*(texts for texts, _ in shards), strict=True)
        texts = [[text for part in role for text in part] for role in roles]
        labels = [labels for _, labels in shards if labels is not None]
        return DevSet(self.kind, texts, np.concatenate(labels) if labels else None)


class RankContext(Protocol):
    """A rank's place in the run, and where it reports to."""

    group: ProcessGroup

    @contextmanager
    def open_checkpoint(self) -> Iterator[Path | None]:
        """The folder of the last checkpoint; None at the start of a run."""
        ...

    def report(self, metrics: Metrics, checkpoint: Path | None) -> None:
        """Report metrics and, from rank 0, a folder to keep as checkpoint. All ranks must."""
        ...


class RayRank:
    """The rank of this Ray Train worker."""

    def __init__(self) -> None:
        context = ray.train.get_context()
        self.group = ProcessGroup(context.get_world_rank(), context.get_world_size())

    @contextmanager
    def open_checkpoint(self) -> Iterator[Path | None]:
        """The folder of the last checkpoint; None at the start of a run."""
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            yield None
            return
        with checkpoint.as_directory() as folder:
            yield Path(folder)

    def report(self, metrics: Metrics, checkpoint: Path | None) -> None:
        """Report to Ray Train, which copies the checkpoint before it returns."""
        if checkpoint is None:
            ray.train.report(metrics)
        else:
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(checkpoint))


def train_rank(config: Mapping[str, object]) -> None:
    """Train this Ray Train worker's rank to the end; `config["job"]` is a TrainJob."""
    job = config["job"]
    assert isinstance(job, TrainJob)
    RankTrainer.start(job, RayRank()).run()


class RankTrainer:
    """One rank's run: the loop, and its reports, checkpoints and dev scores."""

    def __init__(
        self, job: TrainJob, context: RankContext, learner: EncoderLearner, dev: DevSet | None
    ) -> None:
        self.job = job
        self.context = context
        self.group = context.group
        self.learner = learner
        self.dev = dev
        self.loop = TrainLoop(
            learner, job.order(self.group.size), job.recipe, self.group, self._read_shard
        )
        self.board = ProgressBoard(job.run)
        self.history = TrainHistory()
        self.best: dict[str, Tensor] | None = None

    @classmethod
    def start(cls, job: TrainJob, context: RankContext) -> "RankTrainer":
        """Load the model and, if there is one, the last checkpoint."""
        torch.set_num_threads(job.threads)
        learner = job.make_learner(context.group)
        dev = job.held_out() if context.group.rank == 0 else None
        trainer = cls(job, context, learner, dev)
        with context.open_checkpoint() as folder:
            if folder is not None:
                trainer._load(folder)
        return trainer

    @property
    def is_first(self) -> bool:
        """Rank 0 scores, saves and shows the loss."""
        return self.group.rank == 0

    def run(self) -> None:
        """Train from the current step to the end, and report the trained encoder."""
        if self.dev is not None and not self.history.dev:
            self._score_dev(epoch=0)
        try:
            self._train()
        except FloatingPointError as error:
            # Every rank has the same gradient, and it is the same each time. Ray Train would
            # retry after an exception, so the failure is reported as a result instead.
            self._save({"failure": str(error)})
            return
        self.board.write()
        self._finish()

    def _train(self) -> None:
        last = time.monotonic()
        for report in self.loop.run():
            now = time.monotonic()
            self.history.add(report, now - last)
            last = now
            remark = f"loss {self.history.recent_loss:.4f}" if self.is_first else ""
            own_rows = report.num_rows // self.group.size
            self.board.add(own_rows, report.num_own_tokens, remark)
            if report.is_epoch_end and self.dev is not None:
                self._score_dev(report.epoch + 1)
            if report.is_epoch_end or self.loop.step % self.job.checkpoint_steps == 0:
                self._save({"loss": report.loss})

    def _read_shard(self, shard: int) -> TokenizedExamples:
        return self.learner.examples(*self.job.rows(self.job.train_files[shard][0]))

    def _score_dev(self, epoch: int) -> None:
        """Score the held-out rows after an epoch (0: before training); keep the best weights."""
        assert self.dev is not None
        self.learner.eval()
        if isinstance(self.learner, CrossEncoderLearner):
            score = cross_dev_score(self.learner.encoder, self.dev)
        else:
            score = dev_score(self.learner.encoder, self._head(), self.dev)
        if self.history.add_dev_score(epoch, score):
            self.best = {k: v.detach().clone() for k, v in self.learner.state_dict().items()}

    def _head(self) -> SoftmaxHead | None:
        head = getattr(self.learner, "head", None)
        assert head is None or isinstance(head, SoftmaxHead)
        return head

    def _save(self, facts: Metrics) -> None:
        """Report the step and, from rank 0, a checkpoint to continue from."""
        metrics: Metrics = {"epoch": self.loop.epoch, "step": self.loop.step, **facts}
        if not self.is_first:
            self.context.report(metrics, None)
            return
        with tempfile.TemporaryDirectory() as folder:
            self._write_state(Path(folder))
            self.context.report(metrics, Path(folder))

    def _write_state(self, folder: Path) -> None:
        torch.save(self.loop.state(), folder / STATE)
        if self.best is not None:
            torch.save(self.best, folder / BEST)
        self.history.write(folder / HISTORY)

    def _load(self, folder: Path) -> None:
        state: LoopState = torch.load(folder / STATE, weights_only=True)
        self.loop.load(state)
        self.history = TrainHistory.read(folder / HISTORY)
        if (folder / BEST).is_file():
            self.best = torch.load(folder / BEST, weights_only=True)

    def _finish(self) -> None:
        """Report the encoder of the best epoch in the last checkpoint."""
        if not self.is_first:
            self.context.report({"done": True}, None)
            return
        if self.best is not None:
            self.learner.load_state_dict(self.best)
        self.learner.eval()
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            self._write_state(place)
            self.learner.encoder.save(place / ENCODER)
            if (head := self._head()) is not None:
                head.save(place / ENCODER / "head", self.job.classes or ())
            self.context.report({"done": True}, place)
