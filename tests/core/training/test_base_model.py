"""What training starts from."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.encoders import tiny_model, tiny_tokenizer

from sbert_core.encoder.encoder import Encoder
from sbert_core.training.base_model import BaseModelInfo, inspect_base_model, load_base_model

TEXTS = ["the word of the time", "he was with a dog"]


def vectors(folder, pooling=None, dense=None, **options):
    parts = load_base_model(folder, pooling, dense, 0, **options)
    return Encoder(parts, threads=1).encode(TEXTS, normalize=False)


def test_the_base_as_it_is(minilm_folder):
    own = Encoder.load(minilm_folder, threads=1).encode(TEXTS, normalize=False)
    np.testing.assert_array_equal(vectors(minilm_folder), own)


def test_lengths_are_kept_where_a_head_learns_from_them(minilm_folder):
    unit, free = vectors(minilm_folder), vectors(minilm_folder, with_lengths=True)
    lengths = np.linalg.norm(free, axis=1, keepdims=True)
    assert (np.abs(lengths - 1) > 0.1).all()
    np.testing.assert_allclose(free / lengths, unit, atol=1e-6)


def test_a_projection_comes_before_unit_length(minilm_folder):
    projected = vectors(minilm_folder, dense=8)
    assert projected.shape == (2, 8)
    np.testing.assert_allclose(np.linalg.norm(projected, axis=1), 1, atol=1e-6)


def test_a_projection_stays_with_its_pooling(bert_folder, tmp_path):
    Encoder(load_base_model(bert_folder, None, 8, 0)).save(tmp_path / "projected")
    with pytest.raises(ValueError, match="--pooling .*--base"):
        vectors(tmp_path / "projected", pooling="cls")


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "mpnet", "modernbert"])
def test_inspected_base_equals_the_loaded_one(plain_encoder_folder, family, monkeypatch):
    folder = plain_encoder_folder(family)
    loaded = Encoder(load_base_model(folder, "cls", 8, 0), threads=1)
    refuse = pytest.fail  # the configuration and the headers of the weights are enough
    monkeypatch.setattr("sbert_core.training.base_model.load_base_model", refuse)
    assert inspect_base_model(folder, "cls", 8) == BaseModelInfo(loaded.dim, False)
    assert inspect_base_model(folder, None, None).dim == 32


def test_inspected_base_has_the_projection_and_length_of_its_folder(bert_folder, tmp_path):
    base = Encoder(load_base_model(bert_folder, None, 8, 0))
    base.save(tmp_path / "projected")
    assert inspect_base_model(tmp_path / "projected", None, None).dim == 8
    assert inspect_base_model(tmp_path / "projected", None, 4).dim == 4
    with pytest.raises(ValueError, match="max_length 99"):
        inspect_base_model(tmp_path / "projected", None, None, max_length=99)


def test_inspected_base_that_normalises_is_recognised(minilm_folder):
    assert inspect_base_model(minilm_folder, None, None) == BaseModelInfo(384, True)


@pytest.mark.parametrize("damage", ["weights", "tokenizer", "config", "name"])
def test_inspecting_a_broken_base_raises_what_loading_does(bert_folder, tmp_path, damage):
    folder = Path(shutil.copytree(bert_folder, tmp_path / "broken"))
    if damage == "weights":
        (folder / "model.safetensors").write_bytes(b"broken")
    elif damage == "tokenizer":
        (folder / "tokenizer.json").write_text("{}")
    elif damage == "config":
        (folder / "config.json").write_text('{"model_type": "bert", "hidden_size": 16}')
    else:
        weights = load_file(folder / "model.safetensors")
        weights.pop("encoder.layer.1.output.dense.weight")
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError) as loading:
        Encoder(load_base_model(folder, None, None, 0))
    with pytest.raises(ValueError) as inspecting:
        inspect_base_model(folder, None, None)
    assert str(inspecting.value) == str(loading.value)


@pytest.mark.parametrize("load", [load_base_model, inspect_base_model])
def test_static_model_is_refused(load, tmp_path):
    save_file({"embeddings": torch.ones(160, 4)}, tmp_path / "model.safetensors")
    tiny_tokenizer().backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    modules = [{"path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    arguments = (None, None, 0) if load is load_base_model else (None, None)
    with pytest.raises(ValueError, match="static model"):
        load(tmp_path, *arguments)


@pytest.mark.parametrize(("family", "is_refused"), [("albert", True), ("bert", False)])
def test_only_a_padded_model_needs_a_pad_token(family, is_refused, tmp_path):
    tiny_model(family).save_pretrained(tmp_path)
    tokenizer = tiny_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    if is_refused:
        with pytest.raises(ValueError, match="no pad token; add one"):
            inspect_base_model(tmp_path, None, None)
    else:
        assert inspect_base_model(tmp_path, None, None).dim == 32
