"""Space and recipe: equal for a saved copy, different when any one ingredient changes."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.encoders import FAMILIES

from sbert_core.choices import Pooling, Precision
from sbert_core.digest import digest
from sbert_core.encoder.encoder import Encoder


@pytest.fixture
def encoder(bert_folder) -> Encoder:
    return Encoder.load(bert_folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_and_reloaded_copy_has_the_same_space_and_recipe(
    family, plain_encoder_folder, tmp_path
):
    original = Encoder.load(plain_encoder_folder(family), truncate_dim=16, pooling="max")
    original.save(tmp_path / "once")
    once = Encoder.load(tmp_path / "once")
    once.save(tmp_path / "twice")
    twice = Encoder.load(tmp_path / "twice")
    assert original.space() == once.space() == twice.space()
    assert original.recipe() == once.recipe() == twice.recipe()


@pytest.mark.slow
@pytest.mark.demo
def test_real_model_has_the_same_space_as_its_copy(minilm_folder, tmp_path):
    original = Encoder.load(minilm_folder)
    original.save(tmp_path)
    assert Encoder.load(tmp_path).space() == original.space()


def test_place_threads_and_budget_are_no_ingredients(bert_folder, encoder, tmp_path):
    shutil.copytree(bert_folder, tmp_path / "elsewhere")
    other = Encoder.load(tmp_path / "elsewhere", threads=3, token_budget=99)
    assert other.recipe() == encoder.recipe()


def test_one_changed_weight_changes_the_space(bert_folder, encoder):
    other = Encoder.load(bert_folder)
    with torch.no_grad():
        other._model.encoder.layer[1].output.dense.bias[7] += 1e-6
    assert other.space() != encoder.space()


def test_space_follows_weights_that_are_trained_on(bert_folder):
    encoder = Encoder.load(bert_folder)
    before = encoder.space()
    with torch.no_grad():
        encoder._model.encoder.layer[0].output.dense.bias[0] += 1
    assert encoder.space() != before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_dropout_prob", 0.7),
        ("output_hidden_states", True),
        ("use_cache", False),
        ("finetuning_task", "mnli"),
        ("initializer_range", 0.5),
        ("attn_implementation", "eager"),
    ],
)
def test_settings_no_vector_depends_on_are_no_ingredients(
    key, value, bert_folder, encoder, tmp_path
):
    shutil.copytree(bert_folder, tmp_path / "copy")
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    (tmp_path / "copy" / "config.json").write_text(json.dumps(config | {key: value}))
    assert Encoder.load(tmp_path / "copy").space() == encoder.space()


def test_changed_architecture_changes_the_space(bert_folder, encoder, tmp_path):
    shutil.copytree(bert_folder, tmp_path / "heads")
    config = json.loads((tmp_path / "heads" / "config.json").read_text())
    config["num_attention_heads"] = 8
    (tmp_path / "heads" / "config.json").write_text(json.dumps(config))
    assert Encoder.load(tmp_path / "heads").space() != encoder.space()


def test_changed_vocabulary_changes_the_space(bert_folder, encoder, tmp_path):
    shutil.copytree(bert_folder, tmp_path / "words")
    path = tmp_path / "words" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["hot"], vocabulary["word"] = vocabulary["word"], vocabulary["hot"]
    path.write_text(json.dumps(tokenizer))
    assert Encoder.load(tmp_path / "words").space() != encoder.space()


@pytest.mark.parametrize("mode", [mode for mode in Pooling if mode is not Pooling.MEAN])
def test_pooling_changes_the_space(mode, bert_folder, encoder):
    assert Encoder.load(bert_folder, pooling=mode).space() != encoder.space()


def test_normalising_and_truncation_change_the_space(bert_folder, encoder):
    spaces = {
        encoder.space(),
        encoder.space(normalize=False),
        Encoder.load(bert_folder, truncate_dim=16).space(),
        Encoder.load(bert_folder, truncate_dim=8).space(),
    }
    assert len(spaces) == 4
    assert Encoder.load(bert_folder, truncate_dim=32).space() == encoder.space()


def test_lower_casing_and_head_change_the_space(bert_folder, encoder, tmp_path):
    encoder.save(tmp_path / "plain")
    assert Encoder.load(tmp_path / "plain").space() == encoder.space()

    shutil.copytree(tmp_path / "plain", tmp_path / "lower")
    settings = tmp_path / "lower" / "sentence_bert_config.json"
    settings.write_text(json.dumps({"max_seq_length": 64, "do_lower_case": True}))
    assert Encoder.load(tmp_path / "lower").space() != encoder.space()

    shutil.copytree(tmp_path / "plain", tmp_path / "head")
    modules = json.loads((tmp_path / "head" / "modules.json").read_text())
    modules.append(
        {
            "idx": 2,
            "name": "2",
            "path": "2_Normalize",
            "type": "sentence_transformers.models.Normalize",
        }
    )
    (tmp_path / "head" / "modules.json").write_text(json.dumps(modules))
    assert Encoder.load(tmp_path / "head").space() != encoder.space()


def test_every_ingredient_of_the_recipe_changes_it_and_not_the_space(bert_folder, encoder):
    shorter = Encoder.load(bert_folder, max_length=32)
    rougher = Encoder.load(bert_folder)
    rougher.precision = Precision.BFLOAT16
    recipes = [
        encoder.recipe(),
        encoder.recipe(prompt="query: "),
        encoder.recipe(long="pool"),
        encoder.recipe(dtype="float16"),
        encoder.recipe(dtype="int8", scale=0.5),
        encoder.recipe(dtype="int8", scale=0.25),
        encoder.recipe(normalize=False),
        shorter.recipe(),
        rougher.recipe(),
    ]
    assert len(set(recipes)) == len(recipes)
    assert shorter.space() == encoder.space()


def test_default_prompt_is_part_of_the_recipe(bert_folder, encoder):
    parts = encoder._parts
    config = replace(parts.config, prompts={"doc": "of "}, default_prompt_name="doc")
    prompted = Encoder(replace(parts, config=config))
    assert prompted.recipe() == encoder.recipe(prompt="of ") != encoder.recipe()
    assert prompted.recipe(prompt="") == encoder.recipe()


def test_prompt_policy_changes_the_space(bert_folder, encoder):
    other = Encoder.load(bert_folder)
    config = replace(other._parts.config, include_prompt=False)
    changed = Encoder(replace(other._parts, config=config))
    assert changed.space() != encoder.space()


def test_arrays_are_refused_rather_than_cut_short():
    with pytest.raises(TypeError, match="cut short"):
        digest({"scores": np.zeros(2000)})
