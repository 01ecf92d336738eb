"""Folders of today's models as a whole, built by sentence-transformers and opened by both."""

import json
import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from support.encoders import tiny_model, tiny_tokenizer
from support.references import their_model

from sbert_core.encoder.batching import BatchLayout
from sbert_core.encoder.encoder import Encoder

pytestmark = pytest.mark.slow  # the other library takes seconds to import
PROMPTS = {"query": "what is it: ", "document": "the word ", "Clustering": ""}
# family -> pooling of its public models, and whether Dense modules follow it
MODELS = {
    "gemma3": ("mean", True),
    "qwen3": ("lasttoken", False),
    "qwen3-window": ("lasttoken", False),
    "modernbert": ("cls", False),
    "eurobert": ("mean", False),
    "nomic_bert": ("mean", False),
    "gte": ("cls", False),
    "jina_embeddings_v3": ("mean", False),
}


@pytest.fixture(scope="module")
def folder_of(plain_encoder_folder, tmp_path_factory):
    """family -> folder of a whole model with prompts, saved by sentence-transformers."""
    made = {}

    def folder(family):
        if family not in made:
            mode, has_dense = MODELS[family]
            torch.manual_seed(4)
            linear = {"bias": False, "activation_function": torch.nn.Identity()}
            dense = [Dense(32, 128, **linear), Dense(128, 32, **linear)] if has_dense else []
            model = their_model(plain_encoder_folder(family), mode, *dense, Normalize())
            model.prompts = PROMPTS
            made[family] = tmp_path_factory.mktemp(family) / "model"
            model.save(str(made[family]))
        return made[family]

    return folder


@pytest.mark.parametrize("family", MODELS)
def test_whole_folder_equals_sentence_transformers_both_ways(family, folder_of, texts, tmp_path):
    theirs = SentenceTransformer(str(folder_of(family)), device="cpu")
    ours = Encoder.load(folder_of(family), threads=2)
    assert (ours.layout, ours.prompts) == (BatchLayout.FLAT, PROMPTS)
    assert (ours.query_prompt, ours.document_prompt) == (PROMPTS["query"], PROMPTS["document"])
    ours.save(tmp_path / "ours")
    reopened = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    for options in ({}, {"prompt_name": "query"}, {"prompt": "how many "}):
        got = ours.encode(texts, normalize=False, **options)
        for model in (theirs, reopened):
            np.testing.assert_allclose(got, model.encode(texts, **options), atol=1e-5)
    got = ours.encode(texts, prompt=ours.document_prompt)
    np.testing.assert_allclose(got, theirs.encode_document(texts), atol=1e-5)
    assert Encoder.load(tmp_path / "ours").space() == ours.space()


@pytest.mark.parametrize("family", MODELS)
def test_vectors_of_a_whole_folder_depend_on_the_text_alone(family, folder_of, texts):
    encoder = Encoder.load(folder_of(family), threads=1)
    assert encoder.batch_invariant
    want = encoder.encode(texts, prompt_name="query")
    for budget in (1, 90, 4096):
        encoder.token_budget = budget
        np.testing.assert_array_equal(encoder.encode(texts, prompt_name="query"), want)
    np.testing.assert_array_equal(encoder.encode(texts[5:9], prompt_name="query"), want[5:9])


def without_pad_token(folder, copy):
    """A copy of a folder whose tokenizer has no pad token."""
    shutil.copytree(folder, copy)
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    del settings["pad_token"]
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    return copy


def test_model_that_is_not_padded_needs_no_pad_token(folder_of, texts, tmp_path):
    encoder = Encoder.load(without_pad_token(folder_of("qwen3"), tmp_path / "copy"))
    assert encoder.layout is BatchLayout.FLAT
    want = Encoder.load(folder_of("qwen3")).encode(texts)
    np.testing.assert_array_equal(encoder.encode(texts), want)


def test_model_that_is_padded_without_a_pad_token_is_refused(tmp_path):
    tiny_model("albert").save_pretrained(tmp_path / "albert")
    tiny_tokenizer().save_pretrained(tmp_path / "albert")
    folder = without_pad_token(tmp_path / "albert", tmp_path / "copy")
    with pytest.raises(ValueError, match="albert .* no pad token; add") as caught:
        Encoder.load(folder)
    assert "\n" not in str(caught.value)
