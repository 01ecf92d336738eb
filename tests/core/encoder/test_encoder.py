"""Encoder against padded Hugging Face forwards: families, poolings, and the bits of a vector."""

from itertools import product

import numpy as np
import pytest
import torch
from support.encoders import FLAT_FAMILIES, PADDED_FAMILIES, SIZES, tiny_model, tiny_tokenizer
from support.references import POOLING_REFERENCES
from support.speed import cases
from transformers import BertConfig, BertModel

from sbert_core.choices import Pooling
from sbert_core.encoder.backbone import choose_backbone
from sbert_core.encoder.batching import BatchLayout
from sbert_core.encoder.encoder import Encoder


def padded_reference(model, texts: list[str], mode: Pooling) -> np.ndarray:
    """One padded Hugging Face forward, pooled text by text in numpy, not normalised."""
    inputs = tiny_tokenizer()(
        texts, padding=True, truncation=True, return_tensors="pt", return_token_type_ids=False
    )
    with torch.no_grad():
        states = model(**inputs).last_hidden_state.numpy()
    lengths = inputs["attention_mask"].sum(1).tolist()
    rows = zip(states, lengths, strict=True)
    return np.stack([POOLING_REFERENCES[mode](text[:length], 0) for text, length in rows])


@pytest.mark.parametrize(
    ("family", "mode"),
    cases(
        product([*FLAT_FAMILIES, *PADDED_FAMILIES], Pooling),
        lambda family, mode: family == "bert" or mode is Pooling.MEAN,
    ),
)
def test_vectors_match_the_padded_forward(family, mode, plain_encoder_folder, texts):
    encoder = Encoder.load(plain_encoder_folder(family), pooling=mode, token_budget=200)
    want = padded_reference(tiny_model(family), texts, mode)
    np.testing.assert_allclose(encoder.encode(texts, normalize=False), want, atol=1e-5)
    unit = want / np.linalg.norm(want, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(texts), unit, atol=1e-5)


@pytest.mark.parametrize("family", FLAT_FAMILIES)
def test_known_families_take_the_flat_path(family, plain_encoder_folder):
    assert Encoder.load(plain_encoder_folder(family)).layout is BatchLayout.FLAT


@pytest.mark.parametrize("family", PADDED_FAMILIES)
def test_other_families_fall_back_to_padding(family, plain_encoder_folder):
    encoder = Encoder.load(plain_encoder_folder(family))
    assert encoder.layout is BatchLayout.PADDED


def test_decoder_falls_back_to_padding(tmp_path, texts):
    model = tiny_model("bert")
    model.config.is_decoder = True
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    encoder = Encoder.load(tmp_path)
    assert encoder.layout is BatchLayout.PADDED
    assert np.isfinite(encoder.encode(texts)).all()


def test_model_that_computes_otherwise_than_its_family_is_found_out_by_trying():
    model = tiny_model("bert")
    assert choose_backbone(model, pad_id=1, max_length=64).layout is BatchLayout.FLAT
    model.encoder.layer[1].attention.self.scaling *= 0.9
    assert choose_backbone(model, pad_id=1, max_length=64).layout is BatchLayout.PADDED


@pytest.mark.parametrize("family", [*FLAT_FAMILIES, *PADDED_FAMILIES])
def test_padding_token_written_in_a_text_counts_as_the_model_counts_it(
    family, plain_encoder_folder
):
    texts = ["the hot <pad> word of all", "<pad> of", "all of the other words were there"]
    encoder = Encoder.load(plain_encoder_folder(family))
    want = padded_reference(tiny_model(family), texts, Pooling.MEAN)
    np.testing.assert_allclose(encoder.encode(texts, normalize=False), want, atol=1e-5)


def test_model_with_few_positions_and_tuples_for_output_loads(tmp_path):
    model = BertModel(BertConfig(**SIZES | {"max_position_embeddings": 8, "return_dict": False}))
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    encoder = Encoder.load(tmp_path)
    assert (encoder.max_length, encoder.layout) == (8, BatchLayout.FLAT)
    assert np.isfinite(encoder.encode(["the " * 30, "a"])).all()


@pytest.mark.parametrize(
    ("family",),
    cases(product(FLAT_FAMILIES), lambda family: family in ("bert", "mpnet", "distilbert")),
)
def test_bits_depend_on_the_text_alone(family, plain_encoder_folder, texts):
    folder = plain_encoder_folder(family)
    encoder = Encoder.load(folder, threads=1)
    assert encoder.batch_invariant
    want = encoder.encode(texts)
    for budget in (1, 16, 64, 100, 333, 4096):
        encoder.token_budget = budget
        np.testing.assert_array_equal(encoder.encode(texts), want, err_msg=f"budget {budget}")
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = [texts[row] for row in order]
    np.testing.assert_array_equal(encoder.encode(shuffled), want[order])
    np.testing.assert_array_equal(encoder.encode(texts[7:11]), want[7:11])
    for threads in (2, 3):
        threaded = Encoder.load(folder, threads=threads, token_budget=90)
        np.testing.assert_array_equal(threaded.encode(texts), want, err_msg=f"{threads} threads")


@pytest.mark.slow
@pytest.mark.demo
def test_bits_of_the_real_model_depend_on_the_text_alone(minilm_folder):
    sentence = "Vectors of one text must not change with the company it keeps. "
    texts = [sentence[: 7 + 11 * number] * (1 + number // 9) for number in range(40)]
    encoder = Encoder.load(minilm_folder, threads=1)
    assert encoder.batch_invariant
    want = encoder.encode(texts)
    for budget in (64, 512, 2048):
        encoder.token_budget = budget
        np.testing.assert_array_equal(encoder.encode(texts), want)
    np.testing.assert_array_equal(encoder.encode(texts[::-3]), want[::-3])
    np.testing.assert_array_equal(encoder.encode(texts[:1]), want[:1])
    threaded = Encoder.load(minilm_folder, threads=2)
    np.testing.assert_array_equal(threaded.encode(texts), want)


@pytest.mark.demo
def test_real_model_gives_the_published_cosines(minilm_folder):
    weather, sunny, stadium = Encoder.load(minilm_folder).encode(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    )
    assert weather @ sunny == pytest.approx(0.6660, abs=5e-5)
    assert weather @ stadium == pytest.approx(0.1046, abs=5e-5)


def test_encode_leaves_torch_threads_as_they_were(bert_folder, texts):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        Encoder.load(bert_folder, threads=2).encode(texts)
        Encoder.load(bert_folder, threads=1).encode(texts)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_unit_vectors_are_float32_of_length_one(bert_folder, texts):
    vectors = Encoder.load(bert_folder).encode(texts)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_no_texts_give_no_vectors(bert_folder):
    assert Encoder.load(bert_folder).encode([]).shape == (0, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 67}, "max_length 67 exceeds the model's 66 positions"),
        ({"max_length": 2}, "max_length 2 leaves no room"),
        ({"max_length": 0}, "max_length is 0; give a whole number from 1 up"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": -1}, "threads is -1"),
        ({"token_budget": 0}, "token_budget is 0"),
        ({"token_budget": "512"}, "token_budget is '512'"),
        ({"token_budget": True}, "token_budget is True"),
        ({"truncate_dim": 0}, r"truncate_dim 0 is not within 1\.\.32"),
        ({"truncate_dim": 33}, r"truncate_dim 33 is not within 1\.\.32"),
        ({"device": "meta"}, "device 'meta' is not supported"),
        ({"pooling": "median"}, "'median' is not a valid Pooling"),
        ({"precision": "int4"}, "precision 'int4' is unknown"),
    ],
)
def test_options_out_of_range_are_refused(bert_folder, options, message):
    with pytest.raises(ValueError, match=message):
        Encoder.load(bert_folder, **options)


def test_roberta_positions_leave_room_for_the_padding_index(plain_encoder_folder):
    folder = plain_encoder_folder("roberta")
    long_text = "the " * 200
    vectors = Encoder.load(folder, max_length=64).encode([long_text])
    assert np.isfinite(vectors).all()
    with pytest.raises(ValueError, match="64 positions"):
        Encoder.load(folder, max_length=65)
