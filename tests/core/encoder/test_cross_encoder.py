"""Cross-encoders: equal scores in sentence-transformers, both ways."""

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as TheirCrossEncoder
from support.static_models import write_static_model
from support.texts import sentences

from sbert_core.encoder.cross_encoder import CrossEncoder

PAIRS = list(zip(sentences(24, seed=1), sentences(24, seed=2), strict=True))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("num_outputs", [1, 3])
def test_scores_are_equal_both_ways(pair_folder, tmp_path, family, num_outputs):
    torch.manual_seed(0)
    mine = CrossEncoder.load(pair_folder(family), num_outputs=num_outputs, max_length=40)
    scores = mine.predict(PAIRS)
    assert scores.shape == ((24,) if num_outputs == 1 else (24, num_outputs))
    mine.save(tmp_path / "mine")
    theirs = TheirCrossEncoder(str(tmp_path / "mine"), device="cpu")
    np.testing.assert_allclose(theirs.predict(PAIRS), scores, atol=1e-5)
    np.testing.assert_allclose(
        CrossEncoder.load(tmp_path / "mine").predict(PAIRS), scores, atol=1e-6
    )
    theirs.save_pretrained(str(tmp_path / "theirs"))
    again = CrossEncoder.load(tmp_path / "theirs")
    np.testing.assert_allclose(again.predict(PAIRS), scores, atol=1e-5)


def test_an_encoder_without_a_head_is_no_cross_encoder(bert_folder):
    with pytest.raises(ValueError, match=r"classifier\.\w+"):
        CrossEncoder.load(bert_folder)


@pytest.mark.parametrize("num_outputs", [None, 1])
def test_a_static_model_is_no_cross_encoder(num_outputs, tmp_path):
    folder = write_static_model(tmp_path / "static")
    with pytest.raises(ValueError, match="static model .* use a transformer"):
        CrossEncoder.load(folder, num_outputs=num_outputs)


def test_a_head_of_another_size_is_replaced(pair_folder, tmp_path):
    CrossEncoder.load(pair_folder("bert"), num_outputs=3).save(tmp_path)
    assert CrossEncoder.load(tmp_path, num_outputs=1).predict(PAIRS).shape == (24,)
