"""Folders that must not load, and how they say so."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.sentence_transformer.modules import (
    Dense,
)
from support.references import their_model

from sbert_core.encoder.encoder import Encoder


def copy_of(folder, target):
    shutil.copytree(folder, target)
    return target


def test_pickle_only_checkpoint_is_refused_with_the_remedy(bert_folder, tmp_path):
    folder = copy_of(bert_folder, tmp_path / "pickle")
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"only a pickle \(pytorch_model\.bin\).*safetensors") as e:
        Encoder.load(folder)
    assert "\n" not in str(e.value)


def test_pickled_dense_is_refused(bert_folder, tmp_path):
    their_model(bert_folder, "mean", Dense(32, 8)).save(str(tmp_path))
    dense = tmp_path / "2_Dense"
    torch.save(load_file(dense / "model.safetensors"), dense / "pytorch_model.bin")
    (dense / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"2_Dense .*pytorch_model\.bin"):
        Encoder.load(tmp_path)


def test_code_that_comes_with_a_model_never_runs(bert_folder, tmp_path):
    folder = copy_of(bert_folder, tmp_path / "remote")
    marker = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Evil: pass\n")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "evil.Evil", "AutoConfig": "evil.Evil"}
    (folder / "config.json").write_text(json.dumps(config))
    assert np.isfinite(Encoder.load(folder).encode(["the"])).all()
    config["model_type"] = "unheard-of"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="unheard-of"):
        Encoder.load(folder)
    assert not marker.exists()


def test_attention_kernel_named_by_a_folder_is_not_fetched(bert_folder, texts, tmp_path):
    folder = copy_of(bert_folder, tmp_path / "kernel")
    config = json.loads((folder / "config.json").read_text())
    config["attn_implementation"] = "someone/kernel"
    (folder / "config.json").write_text(json.dumps(config))
    want = Encoder.load(bert_folder).encode(texts)
    np.testing.assert_array_equal(Encoder.load(folder).encode(texts), want)


def test_missing_weights_are_refused_rather_than_made_up(bert_folder, tmp_path):
    folder = copy_of(bert_folder, tmp_path / "partial")
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"encoder\.layer\.1\.output\.dense\.weight"):
        Encoder.load(folder)


def test_missing_pooler_is_no_loss(bert_folder, texts, tmp_path):
    folder = copy_of(bert_folder, tmp_path / "poolerless")
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith("pooler.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    whole, poolerless = Encoder.load(bert_folder), Encoder.load(folder)
    np.testing.assert_array_equal(whole.encode(texts), poolerless.encode(texts))
    assert whole.space() == poolerless.space()


def list_modules(folder: Path, *types: str) -> None:
    listing = [{"type": name, "path": ""} for name in types]
    (folder / "modules.json").write_text(json.dumps(listing))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: (f / "modules.json").write_text("{"), "modules.json is not JSON"),
        (lambda f: (f / "config.json").unlink(), "does not load"),
        (lambda f: (f / "model.safetensors").unlink(), "holds no model"),
        (lambda f: (f / "tokenizer.json").unlink(), "does not load|no fast tokenizer"),
        (
            lambda f: list_modules(f, "sentence_transformers.models.LSTM"),
            r"models\.LSTM' is not supported; use a model made of Dense, .*Transformer",
        ),
        (
            lambda f: list_modules(f, "custom_st.Transformer", "sentence_transformers.x.Pooling"),
            r"'custom_st\.Transformer' is not supported; use",
        ),
        (
            lambda f: list_modules(f, "sentence_transformers.models.Transformer"),
            "modules Transformer; expected Transformer, Pooling",
        ),
        (lambda f: (f / "modules.json").write_text("[null]"), "lists None, .*; save or download"),
        (lambda f: (f / "modules.json").write_text('[{"idx": 0}]'), "lists {'idx': 0}, .*; save"),
        (
            lambda f: (f / "1_Pooling" / "config.json").write_text('{"pooling_mode": "median"}'),
            "'median' is not a valid Pooling",
        ),
        (
            lambda f: (f / "modules.json").write_text(
                (f / "modules.json").read_text().replace("1_Pooling", "../1_Pooling")
            ),
            "leaves the folder",
        ),
        (
            lambda f: (f / "modules.json").write_text(
                (f / "modules.json").read_text().replace("1_Pooling", "/etc")
            ),
            "leaves the folder",
        ),
        (
            lambda f: (f / "config.json").write_text(
                json.dumps(
                    json.loads((f / "config.json").read_text())
                    | {"quantization_config": {"quant_method": "gptq", "bits": 4}}
                )
            ),
            "does not load: the weights are quantised",
        ),
    ],
)
def test_broken_folder_is_named_in_one_line(break_it, message, bert_folder, tmp_path):
    Encoder.load(bert_folder).save(tmp_path / "model")
    break_it(tmp_path / "model")
    with pytest.raises(ValueError, match=message) as error:
        Encoder.load(tmp_path / "model")
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_pooling_cannot_replace_the_folders_own(bert_folder, tmp_path):
    Encoder.load(bert_folder, pooling="cls").save(tmp_path)
    with pytest.raises(ValueError, match="'max'"):
        Encoder.load(tmp_path, pooling="max")


@pytest.mark.parametrize("name", ["no/such-model", "no/such-model@main", "./nowhere", "a/b/c", ""])
def test_unknown_model_is_one_line_with_the_remedy(name):
    with pytest.raises(ValueError, match="folder") as error:
        Encoder.load(name)
    assert "\n" not in str(error.value)
    assert repr(name) in str(error.value)
