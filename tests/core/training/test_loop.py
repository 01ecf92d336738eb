"""The training loop: it learns, it can be taken up, and ranks change nothing."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.texts import sentences
from support.training import loop_of, losses_and_gradients, rows_for, weights

from sbert_core.encoder.encoder import Encoder
from sbert_core.training.losses import OBJECTIVES

pytestmark = pytest.mark.timeout(240)
TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_fall(bert_folder, objective):
    loop = loop_of(
        bert_folder, objective, rows_for(objective, 12), [7, 5], batch_size=12, epochs=25
    )
    losses = [report.loss for report in loop.run()]
    assert len(losses) == 25
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.slow
def test_taken_up_after_any_step_the_weights_are_the_same(bert_folder):
    rows = rows_for("cosine", 22)
    options = {"batch_size": 4, "epochs": 2, "accumulate": 2, "dropout": 0.1}
    whole = loop_of(bert_folder, "cosine", rows, [9, 13], **options)
    reports = list(whole.run())
    assert [(r.epoch, r.step) for r in reports] == [(e, s) for e in (0, 1) for s in range(3)]
    for stop in (1, 3, 5):
        first = loop_of(bert_folder, "cosine", rows, [9, 13], **options)
        steps = first.run()
        for _ in range(stop):
            next(steps)
        saved = first.state()
        saved = {k: (dict(v) if isinstance(v, dict) else v) for k, v in saved.items()}
        steps.close()
        second = loop_of(bert_folder, "cosine", rows, [9, 13], **options)
        second.load(saved)
        rest = list(second.run())
        assert [r.loss for r in rest] == [r.loss for r in reports[stop:]]
        for name, value in weights(whole).items():
            assert torch.equal(value, weights(second)[name]), name


def test_the_encoder_judged_between_epochs_is_the_trained_one(bert_folder, tmp_path):
    loop = loop_of(bert_folder, "cosine", rows_for("cosine", 24), [24], epochs=2)
    encoder, texts = loop.learner.encoder, sentences(12)
    before = encoder.encode(texts)
    for report in loop.run():
        if report.is_epoch_end:
            loop.learner.eval()
            seen = encoder.encode(texts)
            folder = tmp_path / str(report.epoch)
            encoder.save(folder)
            np.testing.assert_allclose(seen, Encoder.load(folder).encode(texts), atol=1e-6)
            assert np.abs(seen - before).max() > 1e-3


def test_what_a_process_did_before_changes_no_batch(bert_folder):
    """Long batches of an evaluation, say: a restarted process has not seen them."""
    rows = rows_for("cosine", 60, seed=5)
    fresh = loop_of(bert_folder, "cosine", rows, [60], batch_size=60, dropout=0.1)
    used = loop_of(bert_folder, "cosine", rows, [60], batch_size=60, dropout=0.1)
    used.learner.encoder.encode([text for role in rows[0] for text in role * 4])
    assert [r.loss for r in fresh.run()] == [r.loss for r in used.run()]
    for name, value in weights(fresh).items():
        assert torch.equal(value, weights(used)[name]), name


def test_accumulated_batches_step_as_one(bert_folder):
    rows = rows_for("cosine", 16)
    one = loop_of(bert_folder, "cosine", rows, [16], batch_size=16)
    four = loop_of(bert_folder, "cosine", rows, [16], batch_size=4, accumulate=4)
    assert [r.loss for r in four.run()] == pytest.approx([r.loss for r in one.run()], rel=1e-5)
    for name, value in weights(one).items():
        torch.testing.assert_close(value, weights(four)[name], rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def two_ranks(bert_folder, tmp_path_factory):
    """What two processes of one rank each have found, for each objective and size of batches."""
    place = tmp_path_factory.mktemp("ranks")
    command = [
        sys.executable,
        "-P",  # a module of ours hides none of the same name
        str(TESTS / "support" / "two_ranks.py"),
        str(bert_folder),
        str(place),
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    cases = [*(f"{objective}:7" for objective in OBJECTIVES), "cosine:1"]
    subprocess.run([*command, *cases], env=env, timeout=200, check=True)
    return [torch.load(place / f"rank-{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_two_ranks_learn_what_one_does(bert_folder, two_ranks, objective):
    """Equal rows in every global batch; ranks hold unequal shares of them (7 and 5).

    Gradients are compared, not weights: Adam turns the rounding of a gradient that should be zero
    (a key's bias) into whole steps.
    """
    alone = loop_of(
        bert_folder, objective, rows_for(objective, 12), [7, 5], batch_size=12, epochs=3
    )
    losses, gradients = losses_and_gradients(alone)
    found = [rank[f"{objective}:7"] for rank in two_ranks]
    assert found[0]["losses"] == pytest.approx(losses, rel=1e-5)
    for name, value in found[0]["weights"].items():
        assert torch.equal(value, found[1]["weights"][name]), name
    for name, value in gradients[0].items():
        torch.testing.assert_close(found[0]["gradients"][0][name], value, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_rank_without_rows_in_a_step_takes_part(two_ranks):
    """One row per batch and unequal shares: the shorter rank has steps without a row."""
    found = [rank["cosine:1"] for rank in two_ranks]
    assert len(found[0]["losses"]) == 3 * 7
    assert found[0]["losses"] == found[1]["losses"]
