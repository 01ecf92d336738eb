"""Static models: averages of token embeddings, as sentence-transformers computes them."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding
from support.encoders import tiny_tokenizer

from sbert_core.choices import Precision
from sbert_core.encoder.encoder import Encoder

pytestmark = pytest.mark.slow  # the other library takes seconds to import
TEXTS = ["the hot word", "of", "what a word is that? " * 50, "the hot word", "many words"]


def weights(seed=0):
    torch.manual_seed(seed)
    return torch.randn(160, 24)


@pytest.fixture
def theirs(tmp_path):
    """tail -> a static model of sentence-transformers, and its folder."""

    def make(*tail):
        static = StaticEmbedding(tiny_tokenizer(), embedding_weights=weights())
        model = SentenceTransformer(modules=[static, *tail], device="cpu")
        model.save(str(tmp_path / "theirs"))
        return model, tmp_path / "theirs"

    return make


@pytest.mark.parametrize("tail", [(), ("normalize",), ("dense", "normalize")])
def test_static_model_equals_sentence_transformers_both_ways(tail, theirs, tmp_path):
    torch.manual_seed(1)
    kinds = {"normalize": Normalize, "dense": lambda: Dense(24, 8)}
    model, folder = theirs(*(kinds[name]() for name in tail))
    want = model.encode(TEXTS, normalize_embeddings=False)
    ours = Encoder.load(folder)
    np.testing.assert_allclose(ours.encode(TEXTS, normalize=False), want, atol=1e-6)
    ours.save(tmp_path / "ours")
    again = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS, normalize_embeddings=False), want, atol=1e-6)
    assert Encoder.load(tmp_path / "ours").space() == ours.space()


@pytest.mark.parametrize("extra", [(), ("mapping",), ("mapping", "weights")])
def test_folder_of_model2vec_has_one_vector_per_token(extra, tmp_path):
    rows, mapping = weights()[:40], torch.arange(160) % 40
    importance = torch.rand(160, dtype=torch.float64)
    saved = {"embeddings": rows if extra else weights()}
    saved |= {"mapping": mapping} if "mapping" in extra else {}
    saved |= {"weights": importance} if "weights" in extra else {}
    save_file(saved, tmp_path / "model.safetensors")
    tiny_tokenizer().backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "model2vec", "normalize": True})
    )
    table = rows[mapping] if extra else weights()
    table = table * importance.float()[:, None] if "weights" in extra else table
    tokenizer = tiny_tokenizer()
    want = np.stack(
        [table[tokenizer(t, add_special_tokens=False)["input_ids"]].mean(0).numpy() for t in TEXTS]
    )
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    got = Encoder.load(tmp_path).encode(TEXTS, normalize=False)
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_static_vectors_depend_on_the_text_alone(theirs):
    encoder = Encoder.load(theirs()[1], threads=2)
    want = encoder.encode(TEXTS)
    np.testing.assert_array_equal(np.stack([encoder.encode([t])[0] for t in TEXTS]), want)
    assert encoder.batch_invariant


@pytest.mark.parametrize("side", ["left", "right"])
def test_length_of_a_static_model_is_saved_and_followed(side, theirs, tmp_path):
    model, folder = theirs()
    [static] = model
    static.tokenizer.enable_truncation(7, direction=side)
    model.save(str(folder))
    ours = Encoder.load(folder)
    assert ours.max_length == 7
    want = model.encode(TEXTS, normalize_embeddings=False)
    np.testing.assert_allclose(ours.encode(TEXTS, normalize=False), want, atol=1e-6)
    shorter = Encoder.load(folder, max_length=3)
    shorter.save(tmp_path / "ours")
    assert Encoder.load(tmp_path / "ours").recipe() == shorter.recipe()
    again = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    want = again.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(shorter.encode(TEXTS), want, atol=1e-6)


def test_unknown_tokens_are_counted(theirs):
    found = Encoder.load(theirs()[1]).encode_report(["the 가 word 나"])
    assert found.num_unknown_tokens == 2


@pytest.mark.parametrize("precision", [Precision.BFLOAT16, Precision.FLOAT16, Precision.INT8])
def test_format_that_would_only_lose_digits_is_refused(precision, theirs):
    folder = theirs()[1]
    with pytest.raises(ValueError, match=f"{precision} .*static model.* use float32") as caught:
        Encoder.load(folder, precision=precision)
    assert "\n" not in str(caught.value)
    assert Encoder.load(folder, precision="auto").precision is Precision.FLOAT32


def test_text_without_tokens_has_a_reason(theirs):
    found = Encoder.load(theirs()[1]).encode_report(["the word", "\u200b"])
    assert list(found.reasons) == [1]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [({"other": torch.ones(2, 2)}, "holds other"), ({"embeddings": torch.ones(4)}, "not a table")],
)
def test_broken_static_folder_is_named_in_one_line(tensors, message, tmp_path):
    save_file(tensors, tmp_path / "model.safetensors")
    tiny_tokenizer().backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"model_type": "model2vec"}')
    with pytest.raises(ValueError, match=message) as caught:
        Encoder.load(tmp_path)
    assert "\n" not in str(caught.value)
