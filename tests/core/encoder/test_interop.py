"""The folder format both ways: sentence-transformers opens ours, we open theirs."""

import json
import shutil
from itertools import product

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
)
from support.encoders import SIZES, tiny_tokenizer
from support.references import their_model
from transformers import BertConfig, BertModel

from sbert_core.choices import Pooling
from sbert_core.encoder.encoder import Encoder

pytestmark = pytest.mark.slow  # the other library takes seconds to import
PROMPTS = {"query": "the word ", "document": "of "}


def tails(name: str) -> list:
    torch.manual_seed(3)
    return {
        "none": [],
        "normalize": [Normalize()],
        "dense": [Dense(32, 24)],
        "dense, normalize": [
            Dense(32, 24, bias=False, activation_function=torch.nn.Identity()),
            Normalize(),
        ],
        "two dense": [Dense(32, 48, activation_function=torch.nn.GELU()), Dense(48, 8)],
    }[name]


def assert_equal_vectors(ours: Encoder, theirs: SentenceTransformer, texts: list[str]) -> None:
    want = theirs.encode(texts, normalize_embeddings=False)
    np.testing.assert_allclose(ours.encode(texts, normalize=False), want, atol=1e-5)
    unit = theirs.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(ours.encode(texts), unit, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "tail"),
    list(product(Pooling, ["none", "normalize", "dense", "dense, normalize", "two dense"])),
)
def test_interop_both_ways_gives_equal_vectors(mode, tail, bert_folder, texts, tmp_path):
    theirs = their_model(bert_folder, mode.value, *tails(tail))
    theirs.save(str(tmp_path / "theirs"))
    ours = Encoder.load(tmp_path / "theirs")
    assert_equal_vectors(ours, theirs, texts)
    ours.save(tmp_path / "ours")
    reopened = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    assert_equal_vectors(ours, reopened, texts)


@pytest.mark.parametrize("family", ["roberta", "mpnet", "distilbert", "electra", "modernbert"])
def test_interop_other_families(family, plain_encoder_folder, texts, tmp_path):
    theirs = their_model(plain_encoder_folder(family), "mean")
    theirs.save(str(tmp_path / "theirs"))
    ours = Encoder.load(tmp_path / "theirs")
    assert_equal_vectors(ours, theirs, texts)
    ours.save(tmp_path / "ours")
    assert_equal_vectors(ours, SentenceTransformer(str(tmp_path / "ours"), device="cpu"), texts)


@pytest.mark.parametrize("modes", [("cls", "mean"), ("mean", "cls")])
def test_interop_several_poolings_side_by_side(modes, bert_folder, texts, tmp_path):
    theirs = their_model(bert_folder, modes)
    theirs.save(str(tmp_path / "theirs"))
    ours = Encoder.load(tmp_path / "theirs")
    assert ours.dim == 64
    assert_equal_vectors(ours, theirs, texts)
    ours.save(tmp_path / "ours")
    assert_equal_vectors(ours, SentenceTransformer(str(tmp_path / "ours"), device="cpu"), texts)
    assert Encoder.load(tmp_path / "ours").space() == ours.space()


@pytest.mark.parametrize(
    ("mode", "include_prompt"),
    list(product(Pooling, [True, False])),
)
def test_interop_prompts(mode, include_prompt, bert_folder, texts, tmp_path):
    theirs = their_model(bert_folder, mode.value, include_prompt=include_prompt)
    theirs.prompts = PROMPTS
    theirs.save(str(tmp_path / "theirs"))
    ours = Encoder.load(tmp_path / "theirs")
    assert ours.prompts == PROMPTS
    for options in ({"prompt_name": "query"}, {"prompt": "is it so "}, {}):
        want = theirs.encode(texts, normalize_embeddings=True, **options)
        np.testing.assert_allclose(ours.encode(texts, **options), want, atol=1e-5)
    ours.save(tmp_path / "ours")
    reopened = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    want = reopened.encode(texts, prompt_name="document", normalize_embeddings=True)
    np.testing.assert_allclose(ours.encode(texts, prompt_name="document"), want, atol=1e-5)


def test_default_prompt_is_used_and_an_unknown_one_refused(bert_folder, tmp_path):
    theirs = their_model(bert_folder, "mean")
    theirs.prompts, theirs.default_prompt_name = PROMPTS, "document"
    theirs.save(str(tmp_path))
    ours = Encoder.load(tmp_path)
    np.testing.assert_array_equal(ours.encode(["hot"]), ours.encode(["hot"], prompt="of "))
    assert not np.array_equal(ours.encode(["hot"]), ours.encode(["hot"], prompt=""))
    with pytest.raises(ValueError, match="'title'.*: document, query"):
        ours.encode(["hot"], prompt_name="title")
    with pytest.raises(ValueError, match=r"63 tokens .* max_length 64"):
        ours.encode(["hot"], prompt="the " * 80)


def test_lower_casing_of_the_folder_is_followed(bert_folder, texts, tmp_path):
    Encoder.load(bert_folder).save(tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = tmp_path / "sentence_bert_config.json"
    shouted = [text.upper() for text in texts]
    vectors = {}
    for lower_case in (False, True):
        settings.write_text(json.dumps({"max_seq_length": 64, "do_lower_case": lower_case}))
        theirs = SentenceTransformer(str(tmp_path), device="cpu")
        ours = Encoder.load(tmp_path)
        assert_equal_vectors(ours, theirs, shouted)
        vectors[lower_case] = ours.encode(shouted)
    assert np.abs(vectors[True] - vectors[False]).max() > 0.01


@pytest.mark.parametrize("name", ["sentence_roberta_config.json", "sentence_xlnet_config.json"])
def test_older_names_of_the_settings_are_read(name, bert_folder, texts, tmp_path):
    Encoder.load(bert_folder).save(tmp_path)
    (tmp_path / "sentence_bert_config.json").unlink()
    (tmp_path / name).write_text(json.dumps({"max_seq_length": 10, "do_lower_case": False}))
    ours = Encoder.load(tmp_path)
    assert ours.max_length == 10
    assert_equal_vectors(ours, SentenceTransformer(str(tmp_path), device="cpu"), texts)


def test_truncation_of_the_beginning_is_followed_and_part_of_the_recipe(
    bert_folder, texts, tmp_path
):
    Encoder.load(bert_folder, max_length=10).save(tmp_path)
    right = Encoder.load(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings["truncation_side"] = "left"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    left = Encoder.load(tmp_path)
    assert_equal_vectors(left, SentenceTransformer(str(tmp_path), device="cpu"), texts)
    assert not np.allclose(left.encode(texts), right.encode(texts))
    assert left.recipe() != right.recipe()
    assert left.space() == right.space()


def test_length_beyond_512_is_followed(texts, tmp_path):
    torch.manual_seed(0)
    model = BertModel(BertConfig(**SIZES | {"max_position_embeddings": 1024}))
    model.save_pretrained(tmp_path / "plain")
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = 1024
    tokenizer.save_pretrained(tmp_path / "plain")
    theirs = their_model(tmp_path / "plain", "mean")
    theirs.save(str(tmp_path / "theirs"))
    ours = Encoder.load(tmp_path / "theirs")
    assert ours.max_length == 1024
    assert_equal_vectors(ours, theirs, [" ".join(texts), *texts])


def test_similarity_of_the_folder_survives_saving(bert_folder, tmp_path):
    theirs = their_model(bert_folder, "mean")
    theirs.similarity_fn_name = "dot"
    theirs.save(str(tmp_path / "theirs"))
    Encoder.load(tmp_path / "theirs").save(tmp_path / "ours")
    assert SentenceTransformer(str(tmp_path / "ours"), device="cpu").similarity_fn_name == "dot"


def test_max_length_of_the_folder_is_followed(bert_folder, texts, tmp_path):
    theirs = their_model(bert_folder, "mean")
    theirs.max_seq_length = 12
    theirs.save(str(tmp_path / "theirs"))
    ours = Encoder.load(tmp_path / "theirs")
    assert ours.max_length == 12
    assert_equal_vectors(ours, theirs, texts)
    Encoder.load(tmp_path / "theirs", max_length=9).save(tmp_path / "ours")
    reopened = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    assert_equal_vectors(Encoder.load(tmp_path / "ours"), reopened, texts)
    assert reopened.max_seq_length == 9


def test_truncate_dim_cuts_before_normalising_and_is_saved(bert_folder, texts, tmp_path):
    their_model(bert_folder, "mean").save(str(tmp_path / "theirs"))
    theirs = SentenceTransformer(str(tmp_path / "theirs"), truncate_dim=10, device="cpu")
    ours = Encoder.load(tmp_path / "theirs", truncate_dim=10)
    assert ours.dim == 10
    assert_equal_vectors(ours, theirs, texts)
    ours.save(tmp_path / "ours")
    assert Encoder.load(tmp_path / "ours").dim == 10
    reopened = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    assert_equal_vectors(Encoder.load(tmp_path / "ours"), reopened, texts)


@pytest.mark.demo
def test_real_model_matches_sentence_transformers(minilm_folder):
    texts = ["A short one.", "Something longer, " * 40, "가나다", "mixed CASE and 123"]
    theirs = SentenceTransformer(str(minilm_folder), device="cpu")
    assert_equal_vectors(Encoder.load(minilm_folder), theirs, texts)


def test_half_precision_weights_load_as_float32(bert_folder, texts, tmp_path):
    shutil.copytree(bert_folder, tmp_path / "half")
    weights = load_file(bert_folder / "model.safetensors")
    halved = {name: weight.half() for name, weight in weights.items()}
    save_file(halved, tmp_path / "half" / "model.safetensors", metadata={"format": "pt"})
    half = Encoder.load(tmp_path / "half")
    assert half.encode(texts).dtype == np.float32
    np.testing.assert_allclose(
        half.encode(texts), Encoder.load(bert_folder).encode(texts), atol=0.01
    )
