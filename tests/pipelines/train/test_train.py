"""`sbert train`, `sbert mine`, `sbert evaluate`: whole runs on Ray with tiny encoders."""

import json
import os
import random
import shutil
import signal
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray.cloudpickle
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from support.embedding import sentences
from support.kills import Job, descendants, started_at
from transformers import GPT2Config, GPT2Model

from pipelines.artifacts.errors import PartialWork
from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from pipelines.evaluate import job as evaluate
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.mine import job as mine
from pipelines.mine.spec import MineSpec
from pipelines.prepare import job as prepare
from pipelines.prepare.spec import PrepareSpec
from pipelines.runtime.wait_policy import wait_policy
from pipelines.train import job as train
from pipelines.train.spec import TrainSpec
from sbert_core.encoder.encoder import Encoder

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


def scored_table(number, seed=0):
    """Pairs that match if they share their one key word among noise: that must be learned."""
    rng = random.Random(seed)
    keys = "hot word time".split()
    noise = "the a of and to in is it you that he was for on are with as his they be".split()
    rows = []
    for place in range(number):
        first = rng.choice(keys)
        second = first if place % 2 else rng.choice([key for key in keys if key != first])
        texts = [[key, *rng.choices(noise, k=2)] for key in (first, second)]
        for words in texts:
            rng.shuffle(words)
        rows.append((*map(" ".join, texts), float(first == second)))
    a, b, score = zip(*rows, strict=True)
    return pa.table({"sentence1": a, "sentence2": b, "score": score})


def prepared(file, out, kind, address, **options):
    files = (str(file),)
    prepare.run(PrepareSpec(files=files, out=str(out), format=kind, address=address, **options))


@pytest.fixture(scope="module")
def scored(tmp_path_factory, ray_address):
    folder = tmp_path_factory.mktemp("scored")
    pq.write_table(scored_table(240), folder / "train.parquet")
    pq.write_table(scored_table(80, seed=1), folder / "dev.parquet")
    prepared(folder / "train.parquet", folder / "shards", "scored", ray_address)
    return folder


def train_one(scored, out, base, address, **options):
    spec = TrainSpec(
        shards=str(scored / "shards"),
        base=str(base),
        out=out,
        **{
            "objective": "cosine",
            "epochs": 6,
            "lr": 3e-3,
            "eval": str(scored / "dev.parquet"),
            "address": address,
            "cpus_per_worker": 1,
            **options,
        },
    )
    return train.run(spec)


CALM = {"epochs": 16, "batch_size": 8}


@pytest.fixture(scope="module")
def calm(scored, tmp_path_factory, bert_folder, ray_address):
    """An undisturbed run: where it wrote, and its report."""
    out = tmp_path_factory.mktemp("calm") / "encoder"
    [report] = train_one(scored, out, bert_folder, ray_address, **CALM)
    return out, report


def test_an_encoder_gets_better_and_says_so(scored, calm, bert_folder, ray_address):
    out, report = calm
    assert report.best_score > report.start_score + 10
    train_rows = Artifact.open(scored / "shards").rows
    assert report.rows == 16 * train_rows
    facts = json.loads((out / "training.json").read_text())
    assert facts["report"]["best_epoch"] in range(1, 17)
    assert "training.svg" in (out / "README.md").read_text()
    assert (out / "training.svg").read_text().startswith("<svg")
    texts = sentences(20)
    theirs = SentenceTransformer(str(out), device="cpu").encode(texts)
    np.testing.assert_allclose(Encoder.load(out).encode(texts, normalize=False), theirs, atol=1e-5)
    assert not list(out.parent.glob(".encoder.work*"))
    [again] = train_one(scored, out, bert_folder, "127.0.0.1:1", **CALM)
    assert not again.is_new
    with pytest.raises(ValueError, match=f"{facts['run'][:12]}; .*--out"):
        train_one(scored, out, bert_folder, ray_address, seed=1)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory, ray_address):
    """Pairs with classes: the file and its shards."""
    folder = tmp_path_factory.mktemp("labelled")
    table = scored_table(160)
    label = ["same" if s > 0.4 else "other" for s in table["score"].to_pylist()]
    table = table.drop_columns("score").append_column("label", pa.array(label))
    pq.write_table(table, folder / "pairs.parquet")
    prepared(folder / "pairs.parquet", folder / "shards", "pairs", ray_address)
    return folder


def train_two_ranks(labelled, out, base, address):
    [report] = train.run(
        TrainSpec(
            shards=str(labelled / "shards"),
            base=str(base),
            out=out,
            objective="softmax",
            pooling="cls",
            dense=8,
            workers=2,
            cpus_per_worker=1,
            checkpoint_steps=3,
            lr=3e-3,
            epochs=8,
            address=address,
        )
    )
    return report


@pytest.fixture(scope="module")
def calm_ranks(labelled, tmp_path_factory, bert_folder, ray_address):
    """An undisturbed run of two workers: where it wrote, and its report."""
    out = tmp_path_factory.mktemp("ranks") / "encoder"
    return out, train_two_ranks(labelled, out, bert_folder, ray_address)


def test_two_workers_share_the_rows_and_the_head_is_saved(labelled, calm_ranks):
    out, report = calm_ranks
    assert (report.rows, report.workers) == (8 * Artifact.open(labelled / "shards").rows, 2)
    losses = json.loads((out / "training.json").read_text())["loss"]
    assert losses[-1][1] < losses[0][1]
    assert Encoder.load(out).dim == 8
    assert json.loads((out / "head" / "config.json").read_text())["classes"] == ["other", "same"]
    found = evaluate.run(EvaluateSpec(models=(str(out),), nli=(str(labelled / "pairs.parquet"),)))
    [score] = found.scores["encoder"]
    assert (score.measure, score.value > 60) == ("accuracy", True)


def assert_same_weights(left, right):
    calm, disturbed = (load_file(folder / "model.safetensors") for folder in (left, right))
    for name, value in calm.items():
        assert torch.equal(value, disturbed[name]), name


def test_a_killed_rank_changes_nothing(
    labelled, calm_ranks, tmp_path, bert_folder, ray_address, monkeypatch
):
    """One rank dies in the middle of an epoch; the weights at the end are the same bits."""
    mark = tmp_path / "died"
    monkeypatch.setattr(
        "pipelines.train.fit.train_rank", lambda config: dying_rank(config, str(mark))
    )
    train_two_ranks(labelled, tmp_path / "killed", bert_folder, ray_address)
    assert mark.exists()
    assert_same_weights(calm_ranks[0], tmp_path / "killed")


def test_a_killed_driver_and_ctrl_c_change_nothing(
    scored, calm, tmp_path, bert_folder, ray_address
):
    """kill -9, then Ctrl-C, each after a checkpoint more; the third run ends with the same bits."""
    out, work = tmp_path / "out", tmp_path / ".out.work"
    words = ["train", str(scored / "shards"), "--base", str(bert_folder), "--out", str(out)]
    words += ["--objective", "cosine", "--epochs", "16", "--batch-size", "8", "--lr", "3e-3"]
    words += ["--eval", str(scored / "dev.parquet")]
    words += ["--checkpoint-steps", "20", "--cpus-per-worker", "1"]
    job = Job(words, tmp_path / "log")
    job.start()
    try:
        wait_until(job, lambda: checkpoints(work))
    finally:
        workers = descendants([job.process.pid])
        os.kill(job.process.pid, signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL, job.log.read_text()
    while any(started_at(pid) is not None for pid in workers):  # they may still save a checkpoint
        time.sleep(0.05)
    before = checkpoints(work)
    job.words += ["--address", ray_address]
    job.start()
    wait_until(job, lambda: checkpoints(work) - before)
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 3, job.log.read_text()
    assert "Traceback" not in job.log.read_text()
    assert not out.exists()
    done = CliRunner().invoke(main, [*words, "--address", ray_address])
    assert done.exit_code == 0, done.output
    assert_same_weights(calm[0], out)
    facts = json.loads((out / "training.json").read_text())
    assert facts["report"]["steps"] == calm[1].steps
    assert not list(tmp_path.glob(".*.work"))


def wait_until(job, is_so):
    """Without a deadline: a loaded machine is not a failure, and the job ends by itself."""
    while not is_so():
        assert job.is_running, job.log.read_text()
        time.sleep(0.05)


def checkpoints(work):
    return {path.name for path in work.glob("*/checkpoint_*")}


def test_workers_that_fit_nowhere_are_refused(scored, tmp_path, bert_folder, ray_address):
    options = {"workers": 2, "cpus_per_worker": 64}
    with (
        wait_policy(1.0),
        pytest.raises(PartialWork, match=r"2 x 64 CPU wanted, room for 0 after 1"),
    ):
        train_one(scored, tmp_path / "x", bert_folder, ray_address, **options)
    assert not (tmp_path / "x").exists()


def test_training_refused_keeps_saved_checkpoints(scored, tmp_path, bert_folder, ray_address):
    def refuse():
        with pytest.raises(ValueError, match="bf16 .*fp32"):
            train_one(scored, tmp_path / "x", bert_folder, ray_address, precision="bf16")

    refuse()
    assert list(tmp_path.iterdir()) == []
    saved = tmp_path / ".x.work/run/checkpoint_1/state.pt"
    saved.parent.mkdir(parents=True)
    saved.touch()
    refuse()
    assert saved.exists()


def test_gradient_not_finite_is_tried_once_and_named(scored, tmp_path, bert_folder, ray_address):
    options = {"lr": 1e30, "epochs": 2, "eval": None}
    for _ in range(2):
        with pytest.raises(ValueError, match=r"epoch 0, step \d+ is nan .*--lr"):
            train_one(scored, tmp_path / "x", bert_folder, ray_address, **options)
    assert not (tmp_path / "x").exists()


def dying_rank(config, mark):
    """train_rank, but rank 1 is killed once, in its 20th step."""
    import os  # noqa: PLC0415 - runs in a worker
    import signal  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    import ray.train  # noqa: PLC0415

    from sbert_core.training.loop import TrainLoop  # noqa: PLC0415
    from workers.train import train_rank  # noqa: PLC0415

    plain = TrainLoop._take_step
    steps = 0

    def take_step(self, *arguments):
        nonlocal steps
        steps += 1
        is_victim = ray.train.get_context().get_world_rank() == 1
        if is_victim and steps == 20 and not Path(mark).exists():
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, *arguments)

    TrainLoop._take_step = take_step
    try:
        train_rank(config)
    finally:
        TrainLoop._take_step = plain


def test_negatives_are_the_hardest_that_pass_the_guards(tmp_path, bert_folder, ray_address):
    texts = sentences(80, longest=10)
    query, positive = texts[:40], texts[40:]
    positive[7] = positive[3]  # an answer of two queries is no negative of either
    query[8] = query[9]  # a query with two answers
    pq.write_table(pa.table({"query": query, "positive": positive}), tmp_path / "a.parquet")
    prepared(tmp_path / "a.parquet", tmp_path / "shards", "ranking", ray_address, shards=3)
    spec = MineSpec(
        shards=str(tmp_path / "shards"),
        model=str(bert_folder),
        out=str(tmp_path / "mined"),
        negatives=2,
        margin=0.01,
        ceiling=0.98,
        address=ray_address,
    )
    report = mine.run(spec)
    assert report.rows + report.left_out == 40
    rows = [r for b in Artifact.open(tmp_path / "mined").read() for r in b.to_pylist()]
    encoder = Encoder.load(bert_folder)
    vectors = dict(zip(texts + positive, encoder.encode(texts + positive), strict=True))
    answers = {}
    for q, p in zip(query, positive, strict=True):
        answers.setdefault(q, set()).add(p)
    for row in rows:
        q, p = vectors[row["query"]], vectors[row["positive"]]
        allowed = [
            (float(q @ vectors[c]), c)
            for c in dict.fromkeys(positive)
            if c not in answers[row["query"]]
            and q @ vectors[c] <= q @ p - 0.01
            and p @ vectors[c] < 0.98
        ]
        expected = sorted(allowed, reverse=True)[:2]
        found = [float(q @ vectors[row[f"negative_{n}"]]) for n in (1, 2)]
        assert found == pytest.approx([cos for cos, _ in expected], abs=1e-6)
    assert mine.run(spec).seconds == 0


def test_cross_encoders_learn_scores(scored, tmp_path, bert_folder, ray_address):
    out = tmp_path / "cross"
    [report] = train_one(
        scored, out, bert_folder, ray_address, objective=None, cross_encoder=True, epochs=20
    )
    assert report.best_score > 40
    assert json.loads((out / "config.json").read_text())["architectures"] == [
        "BertForSequenceClassification"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "softmax"}, r"softmax .* pairs, .* scored"),
        ({"matryoshka": (64,)}, r"matryoshka 64 .* 32"),
        ({"concat": "u,x", "objective": "cosine"}, "concat"),
        ({"workers": 50}, r"50 workers, but \d+ rows in 8 shards"),
        ({"precision": "bf16"}, "bf16 .*fp32"),
    ],
)
def test_bad_requests_are_one_line_and_write_nothing(
    scored, tmp_path, bert_folder, ray_address, options, message
):
    with pytest.raises(ValueError, match=message):
        train_one(scored, tmp_path / "x", bert_folder, ray_address, **options)
    assert not (tmp_path / "x").exists()


def test_bases_that_are_no_encoders_are_refused(scored, tmp_path, bert_folder, ray_address):
    decoder = tmp_path / "gpt2"
    GPT2Model(GPT2Config(vocab_size=160, n_embd=16, n_layer=1, n_head=2)).save_pretrained(decoder)
    with pytest.raises(ValueError, match="gpt2 .*tokenizer"):
        train_one(scored, tmp_path / "x", decoder, ray_address)
    for path in bert_folder.glob("tokenizer*.json"):
        shutil.copy(path, decoder)
    with pytest.raises(ValueError, match=r"decoder \(gpt2\)"):
        train_one(scored, tmp_path / "x", decoder, ray_address)
