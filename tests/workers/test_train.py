"""One rank of a training run, called as a plain object: no Ray, checkpoints in a folder."""

import shutil
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.speed import cases
from support.texts import sentences

from sbert_core.choices import ExampleFormat
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.encoder import Encoder
from sbert_core.training.distributed import ProcessGroup
from sbert_core.training.history import TrainHistory
from sbert_core.training.loop import OptimConfig
from sbert_core.training.losses import SoftmaxHead, make_objective
from workers.train import ENCODER, HISTORY, RankTrainer, TrainJob

FORMATS = {
    "softmax": ExampleFormat.PAIRS,
    "cosine": ExampleFormat.SCORED,
    None: ExampleFormat.SCORED,
}


class Stopped(Exception):
    """The process of a rank ends."""


class FolderRank:
    """A rank that keeps its last checkpoint in a folder, and may stop after a few reports."""

    group = ProcessGroup()

    def __init__(self, folder, num_reports=None):
        self.folder = folder
        self.metrics = []
        self.num_reports = num_reports

    @contextmanager
    def open_checkpoint(self):
        yield self.folder if self.folder.exists() else None

    def report(self, metrics, checkpoint):
        self.metrics.append(metrics)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(checkpoint, self.folder)
        if len(self.metrics) == self.num_reports:
            raise Stopped


def make_job(tmp_path, base, objective, **options):
    kind = FORMATS[objective]
    files = []
    for number, size in enumerate((7, 5, 4)):
        texts = sentences(2 * size, seed=number, longest=6)
        label = np.arange(size) % 2 if kind is ExampleFormat.PAIRS else np.linspace(0, 1, size)
        columns = {"text_a": texts[:size], "text_b": texts[size:], "label": label}
        pq.write_table(pa.table(columns | {"row": [*range(size)]}), tmp_path / f"{number}.parquet")
        files.append((f"{number}.parquet", size))
    settings = {
        "run": "test",
        "shards": str(tmp_path),
        "kind": kind,
        "train_files": tuple(files[:2]),
        "dev_files": (files[2][0],),
        "dev_rows": None,
        "classes": ("no", "yes") if kind is ExampleFormat.PAIRS else None,
        "base": str(base),
        "objective": None if objective is None else make_objective(objective),
        "concat": "u,v,|u-v|",
        "pooling": None,
        "dense": None,
        "max_length": None,
        "recipe": OptimConfig(epochs=2, lr=1e-3),
        "batch_size": 4,
        "seed": 0,
        "threads": torch.get_num_threads(),
        "checkpoint_steps": 2,
    }
    return TrainJob(**(settings | options))


def test_rank_reports_steps_scores_and_the_encoder(tmp_path, bert_folder):
    rank = FolderRank(tmp_path / "checkpoint")
    job = make_job(tmp_path, bert_folder, "softmax")
    RankTrainer.start(job, rank).run()
    assert [(m.get("epoch"), m.get("step")) for m in rank.metrics] == [
        (0, 2), (1, 0), (1, 2), (2, 0), (None, None),
    ]  # fmt: skip
    assert rank.metrics[-1] == {"done": True}
    history = TrainHistory.read(rank.folder / HISTORY)
    assert (len(history.losses), history.rows) == (6, 24)
    assert [epoch for epoch, _ in history.dev] == [0, 1, 2]
    assert history.best_score == max(score for _, score in history.dev[1:])
    head, classes = SoftmaxHead.load(rank.folder / ENCODER / "head")
    assert classes == ["no", "yes"]
    assert head.dim == Encoder.load(rank.folder / ENCODER).dim == 32


@pytest.mark.parametrize(("num_reports",), cases([(1,), (2,), (3,)], lambda own: own == 2))
def test_rank_that_stopped_continues_to_the_same_bits(tmp_path, bert_folder, num_reports):
    job = make_job(tmp_path, bert_folder, "cosine")
    whole = FolderRank(tmp_path / "whole")
    RankTrainer.start(job, whole).run()
    stopped = FolderRank(tmp_path / "stopped", num_reports)
    with pytest.raises(Stopped):
        RankTrainer.start(job, stopped).run()
    again = FolderRank(tmp_path / "stopped")
    RankTrainer.start(job, again).run()
    histories = [TrainHistory.read(rank.folder / HISTORY) for rank in (whole, again)]
    assert histories[0].losses == histories[1].losses
    assert histories[0].dev == histories[1].dev
    vectors = [
        Encoder.load(rank.folder / ENCODER).encode(["how many words"]) for rank in (whole, again)
    ]
    np.testing.assert_array_equal(*vectors)


def test_rank_of_a_cross_encoder_writes_one(tmp_path, pair_folder):
    rank = FolderRank(tmp_path / "checkpoint")
    RankTrainer.start(make_job(tmp_path, pair_folder("bert"), None), rank).run()
    assert CrossEncoder.load(rank.folder / ENCODER).num_outputs == 1


def test_gradient_that_is_not_finite_is_reported_not_raised(tmp_path, bert_folder):
    rank = FolderRank(tmp_path / "checkpoint")
    job = make_job(tmp_path, bert_folder, "cosine", recipe=OptimConfig(epochs=3, lr=1e30, warmup=0))
    RankTrainer.start(job, rank).run()
    assert "gradient" in rank.metrics[-1]["failure"]
    assert not (rank.folder / ENCODER).exists()


def test_job_without_held_out_rows_has_none(tmp_path, bert_folder):
    assert make_job(tmp_path, bert_folder, "cosine", dev_files=()).held_out() is None
    rows = make_job(tmp_path, bert_folder, "cosine").held_out()
    assert [len(role) for role in rows.texts] == [4, 4]
    assert rows.measure == "spearman"
