"""The record of a training run, and the model card made from it."""

import json
import math

import pytest

from sbert_core.training.history import TrainHistory
from sbert_core.training.loop import StepReport
from sbert_core.training.model_card import model_card

FACTS = {
    "run": "x",
    "spec": {
        "out": "models/mine",
        "base": "bert",
        "shards": "shards",
        "cross_encoder": False,
        "objective": "triplet",
        "concat": "u,v",
        "margin": 1,
        "distance": "euclidean",
        "matryoshka": (16, 8),
        "epochs": 2,
        "batch_size": 16,
        "accumulate": 1,
        "lr": 2e-05,
        "warmup": 0.1,
        "weight_decay": 0.0,
        "seed": 0,
    },
    "report": {
        "workers": 1,
        "seconds": 3.0,
        "rows_per_second": 1200.5,
        "measure": "spearman",
        "start_score": 50.0,
        "best_epoch": 2,
        "best_score": 81.25,
    },
    "data": {"rows": [1000, 24], "classes": None},
}


def test_history_keeps_the_best_epoch_but_never_the_untrained_model():
    history = TrainHistory()
    assert [history.add_dev_score(*score) for score in enumerate((90.0, 70.0, 60.0, 80.0))] == [
        False, True, False, True,
    ]  # fmt: skip
    assert (history.best_epoch, history.best_score) == (3, 80.0)


def test_history_is_read_as_it_was_written(tmp_path):
    history = TrainHistory()
    history.write(tmp_path / "empty.json")
    assert TrainHistory.read(tmp_path / "empty.json") == history
    assert history.best_score == -math.inf
    history.add(StepReport(0, 0, True, 0.5, 4, 20), 1.5)
    history.add_dev_score(1, 50.0)
    history.write(tmp_path / "history.json")
    assert TrainHistory.read(tmp_path / "history.json") == history
    assert set(json.loads((tmp_path / "history.json").read_text())) == {
        "losses", "rows", "seconds", "dev", "best_epoch", "best_score",
    }  # fmt: skip


def test_broken_history_is_refused(tmp_path):
    (tmp_path / "history.json").write_text('{"losses": [null]}')
    with pytest.raises(ValueError, match="history.json"):
        TrainHistory.read(tmp_path / "history.json")


def test_model_card_shows_options_and_scores():
    card = model_card(FACTS)
    assert "# mine\n" in card
    assert "| objective | triplet, euclidean margin 1, also at 16, 8 dimensions |" in card
    assert "| data | `shards`, 1,024 rows |" in card
    assert "| lr | 2e-05 |" in card
    assert "**81.25** after epoch 2" in card
    assert 'SentenceTransformer("mine")' in card


def test_model_card_of_a_cross_encoder_without_held_out_rows():
    spec = {**FACTS["spec"], "cross_encoder": True, "objective": None, "matryoshka": ()}
    report = {**FACTS["report"], "best_score": None, "start_score": None, "measure": None}
    card = model_card({**FACTS, "spec": spec, "report": report})
    assert "pipeline_tag: text-ranking" in card
    assert "Held-out" not in card
