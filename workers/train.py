"""One rank of a training run on Ray Train: shards in, checkpoints and an encoder out."""

import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray.train
import torch
from ray.train import Checkpoint

from sbert_core.encoder import Encoder
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.storage import storage_at
from sbert_core.training.base_model import starting_parts
from sbert_core.training.batch import Examples
from sbert_core.training.bi_encoder import Siamese
from sbert_core.training.cross_encoder import Crossed
from sbert_core.training.dev_eval import DevRows, cross_dev_score, dev_score
from sbert_core.training.distributed import World
from sbert_core.training.examples import ExampleFormat
from sbert_core.training.history import History
from sbert_core.training.learner import Learner
from sbert_core.training.loop import Loop, Recipe
from sbert_core.training.losses import Objective, SoftmaxHead
from sbert_core.training.sampler import Order
from workers.common.progress_board import Board

NOT_TEXT = ("label", "row", "file", "length")
STATE, HISTORY, BEST, ENCODER = "state.pt", "history.json", "best.pt", "encoder"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """Everything a rank needs to know.

    objective: None trains a cross-encoder.
    classes: of pairs; other formats have none.
    dev_files: shards to judge by after each epoch; `dev_rows` instead if given.
    """

    run: str
    shards: str
    kind: ExampleFormat
    train_files: tuple[tuple[str, int], ...]
    dev_files: tuple[str, ...]
    dev_rows: DevRows | None
    classes: tuple[str, ...] | None
    base: str
    objective: Objective | None
    concat: str
    pooling: str | None
    dense: int | None
    max_length: int | None
    recipe: Recipe
    batch_size: int
    seed: int
    threads: int
    checkpoint_steps: int

    def learner(self, world: World) -> Learner:
        """The network before its first step: the same on every rank."""
        torch.manual_seed(self.seed)
        if self.objective is None:
            outputs = len(self.classes) if self.classes else 1
            return Crossed(
                CrossEncoder.load(
                    self.base, num_outputs=outputs, max_length=self.max_length, threads=self.threads
                )
            )
        has_head = self.objective.name == "softmax"
        parts = starting_parts(
            Path(self.base), self.pooling, self.dense, self.seed, with_lengths=has_head
        )
        encoder = Encoder(parts, max_length=self.max_length, threads=self.threads)
        head = None
        if has_head:
            assert self.classes is not None
            torch.manual_seed(self.seed + 1)
            head = SoftmaxHead(encoder.dim, len(self.classes), self.concat).to(encoder.device)
        return Siamese(encoder, self.objective, head, world)

    def order(self, world_size: int) -> Order:
        return Order(
            shard_rows=tuple(rows for _, rows in self.train_files),
            world_size=world_size,
            batch_size=self.batch_size,
            seed=self.seed,
        )

    def rows(self, name: str) -> tuple[list[list[str]], np.ndarray | None]:
        """Texts role by role and labels of one shard."""
        with pq.ParquetFile(pa.BufferReader(storage_at(self.shards).buffer(name))) as file:
            table = file.read()
        texts = [table[n].to_pylist() for n in table.column_names if n not in NOT_TEXT]
        if self.kind is ExampleFormat.PAIRS:
            return texts, table["label"].to_numpy().astype(np.int64)
        if self.kind is ExampleFormat.SCORED:
            return texts, table["label"].to_numpy().astype(np.float32)
        return texts, None

    def held_out(self) -> DevRows | None:
        if self.dev_rows is not None or not self.dev_files:
            return self.dev_rows
        shards = [self.rows(name) for name in self.dev_files]
        roles = zip(*(texts for texts, _ in shards), strict=True)
        texts = [[text for part in role for text in part] for role in roles]
        labels = [labels for _, labels in shards if labels is not None]
        return DevRows(self.kind, texts, np.concatenate(labels) if labels else None)


def train_rank(config: dict[str, Any]) -> None:
    """Train from the last checkpoint, or the start, to the end."""
    RankRun(config["job"]).run()


class RankRun:
    """One rank's run: the loop, and what it reports, saves and judges on the way."""

    def __init__(self, job: TrainJob) -> None:
        context = ray.train.get_context()
        self.job = job
        self.world = World(context.get_world_rank(), context.get_world_size())
        torch.set_num_threads(job.threads)
        self.learner = job.learner(self.world)
        self.loop = Loop(
            self.learner, job.order(self.world.size), job.recipe, self.world, self._examples
        )
        self.board = Board(job.run)
        self.history = History()
        self.best: dict[str, Any] | None = None
        self.dev = job.held_out() if self.is_first else None
        if (checkpoint := ray.train.get_checkpoint()) is not None:
            self._load(checkpoint)

    @property
    def is_first(self) -> bool:
        return self.world.rank == 0

    def run(self) -> None:
        if self.dev is not None and not self.history.dev:
            self._judge(epoch=0)
        try:
            self._train()
        except FloatingPointError as error:
            # Every rank has the same gradient, and it is the same each time. Ray Train would try
            # again whatever a rank raises, so this one is reported instead.
            self._save(failure=str(error))
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
            own_rows = report.num_rows // self.world.size
            self.board.add(own_rows, report.num_own_tokens, remark)
            if report.is_epoch_end and self.dev is not None:
                self._judge(report.epoch + 1)
            if report.is_epoch_end or self.loop.step % self.job.checkpoint_steps == 0:
                self._save(loss=report.loss)

    def _examples(self, shard: int) -> Examples:
        return self.learner.examples(*self.job.rows(self.job.train_files[shard][0]))

    def _judge(self, epoch: int) -> None:
        """Score the held-out rows; the best weights so far are kept."""
        assert self.dev is not None
        self.learner.eval()
        if isinstance(self.learner, Crossed):
            score = cross_dev_score(self.learner.encoder, self.dev)
        else:
            assert isinstance(self.learner, Siamese)
            head = self.learner.head
            assert head is None or isinstance(head, SoftmaxHead)
            score = dev_score(self.learner.encoder, head, self.dev)
        # An untrained model does not count as the result of training.
        if epoch and score > self.history.best_score:
            self.best = {k: v.detach().clone() for k, v in self.learner.state_dict().items()}
        self.history.judged(epoch, score)

    def _save(self, **facts: float | str) -> None:
        metrics = {"epoch": self.loop.epoch, "step": self.loop.step, **facts}
        if not self.is_first:
            ray.train.report(metrics)
            return
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            self._write_state(place)
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(place))

    def _write_state(self, place: Path) -> None:
        torch.save(self.loop.state(), place / STATE)
        if self.best is not None:
            torch.save(self.best, place / BEST)
        (place / HISTORY).write_text(json.dumps(asdict(self.history)))

    def _load(self, checkpoint: Checkpoint) -> None:
        with checkpoint.as_directory() as folder:
            place = Path(folder)
            self.loop.load(torch.load(place / STATE, weights_only=True))
            self.history = History(**json.loads((place / HISTORY).read_text()))
            if (place / BEST).is_file():
                self.best = torch.load(place / BEST, weights_only=True)

    def _finish(self) -> None:
        """The encoder of the best epoch, as the last checkpoint."""
        if not self.is_first:
            ray.train.report({"done": True})
            return
        if self.best is not None:
            self.learner.load_state_dict(self.best)
        self.learner.eval()
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            self._write_state(place)
            assert isinstance(self.learner, Siamese | Crossed)
            self.learner.encoder.save(place / ENCODER)
            if isinstance(head := getattr(self.learner, "head", None), SoftmaxHead):
                head.save(place / ENCODER / "head", self.job.classes or ())
            ray.train.report({"done": True}, checkpoint=Checkpoint.from_directory(place))
