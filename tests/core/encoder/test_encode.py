"""One pass over texts: bad texts, repeats, windows, budgets, and the account of them."""

import json
import logging
import re
import threading
from enum import Enum

import numpy as np
import pyarrow as pa
import pytest
import torch
from support.encoders import tiny_tokenizer
from tokenizers import Tokenizer

from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.result import EncodedTexts, TextStatus


def test_any_iterable_of_texts_will_do_but_a_bare_string(bert_folder):
    class Colour(str, Enum):  # noqa: UP042 - whose str() is not its text
        RED = "the hot word"

    encoder = Encoder.load(bert_folder)
    want = encoder.encode(["the hot word", "of all"])
    for texts in (
        (text for text in ["the hot word", "of all"]),
        np.array(["the hot word", "of all"]),
        pa.chunked_array([["the hot word", "of all"]]).to_numpy(),
        [Colour.RED, "of all"],
    ):
        np.testing.assert_array_equal(encoder.encode(texts), want)
    with pytest.raises(ValueError, match="list"):
        encoder.encode("the hot word")


# With a word of the reason.
ODD_TEXTS = {
    None: "null",
    3: "int",
    "": "empty",
    " \n": "blank",
    "x\udc80": "character 1",
    "\x00\x00": "no tokens",
}


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_bad_texts_cost_their_own_row_only(family, plain_encoder_folder):
    encoder = Encoder.load(plain_encoder_folder(family))
    good = ["the hot word", "안녕하세요", "שלום", "🙂🙂", "a\x00b", "all " * 50_000]
    mixed = [*good[:2], *ODD_TEXTS, *good[2:]]
    report = encoder.encode_report(mixed)
    bad_rows = range(2, 2 + len(ODD_TEXTS))
    assert list(report.reasons) == list(bad_rows)
    words = zip(report.reasons.values(), ODD_TEXTS.values(), strict=True)
    assert all(word in reason for reason, word in words)
    assert np.isnan(report.vectors[bad_rows]).all()
    good_rows = [row for row in range(len(mixed)) if row not in bad_rows]
    np.testing.assert_allclose(report.vectors[good_rows], encoder.encode(good), atol=1e-5)
    assert [report.status(row) for row in (0, 2, len(mixed) - 1)] == [
        TextStatus.FINE,
        TextStatus.INVALID,
        TextStatus.TRUNCATED,
    ]


def test_report_counts_tokens_truncation_and_repeats(bert_folder):
    encoder = Encoder.load(bert_folder, max_length=6)
    report = encoder.encode_report(["the of", "the a of and to in", "the of", None, "the of"])
    assert report.num_tokens.tolist() == [4, 6, 4, 0, 4]
    assert report.num_lost_tokens.tolist() == [0, 2, 0, 0, 0]
    assert (report.num_distinct, report.num_truncated) == (2, 1)
    assert (report.num_encoded_tokens, report.num_saved_tokens) == (10, 8)
    np.testing.assert_array_equal(report.vectors[0], report.vectors[4])


def test_each_distinct_text_passes_the_model_once(bert_folder):
    encoder = Encoder.load(bert_folder)
    seen: list[int] = []
    texts = ["the hot word"] * 500 + ["of all"] * 300 + ["the hot word"]
    encoder.encode_report(texts, progress=lambda num_texts, num_tokens: seen.append(num_texts))
    assert sum(seen) == 2


def test_prompt_that_merges_with_a_text_does_not_hide_it(bert_folder):
    report = Encoder.load(bert_folder).encode_report(["녕", "hot", "\x00"], prompt="안")
    assert list(report.reasons) == [2]
    assert "no tokens" in report.reasons[2]


def test_prompt_that_is_no_text_is_refused(bert_folder):
    with pytest.raises(ValueError, match="character 1"):
        Encoder.load(bert_folder).encode(["hot"], prompt="a\ud800")


def test_texts_the_tokenizer_or_the_vocabulary_cannot_take_cost_their_own_row(
    bert_folder, tmp_path
):
    encoder = Encoder.load(bert_folder)
    tokenizer = json.loads((bert_folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    del vocabulary["<unk>"]
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["content"] != "<unk>"]
    vocabulary["hot"] = 777
    encoder._tokenizer._fast = Tokenizer.from_str(json.dumps(tokenizer))
    report = encoder.encode_report(["the word", "안녕", "hot", "of all"])
    assert list(report.reasons) == [1, 2]
    assert "tokenizer" in report.reasons[1]
    assert re.search("777 .* 160", report.reasons[2])
    assert np.isfinite(report.vectors[[0, 3]]).all()


@pytest.mark.slow
def test_million_characters_take_one_truncated_row(bert_folder):
    report = Encoder.load(bert_folder).encode_report(["so " * 350_000, "so"])
    assert report.num_tokens.tolist() == [64, 3]
    assert report.num_lost_tokens.tolist() == [350_000 - 62, 0]


def test_windows_do_not_change_vectors(bert_folder, texts, monkeypatch):
    encoder = Encoder.load(bert_folder)
    want = encoder.encode(texts)
    monkeypatch.setattr("sbert_core.encoder.windows.WINDOW_TEXTS", 7)
    np.testing.assert_array_equal(encoder.encode(texts), want)
    monkeypatch.setattr("sbert_core.encoder.windows.WINDOW_CHARS", 100)
    np.testing.assert_array_equal(encoder.encode(texts), want)


def test_next_window_is_tokenised_while_the_model_works(bert_folder, texts, monkeypatch):
    monkeypatch.setattr("sbert_core.encoder.windows.WINDOW_TEXTS", 20)
    encoder = Encoder.load(bert_folder, threads=1)
    second_window = threading.Event()
    tokenize, launch_batch, windows = encoder.tokenize, encoder.launch_batch, []

    def noted_tokenize(window):
        windows.append(len(window))
        if windows.count(20) == 2:
            second_window.set()
        return tokenize(window)

    def waiting_launch_batch(*arguments):
        assert second_window.wait(timeout=20), "the model had to wait for the tokenizer"
        return launch_batch(*arguments)

    monkeypatch.setattr(encoder, "tokenize", noted_tokenize)
    monkeypatch.setattr(encoder, "launch_batch", waiting_launch_batch)
    assert np.isfinite(encoder.encode(texts)).all()


def test_output_that_is_not_finite_is_invalid(bert_folder):
    encoder = Encoder.load(bert_folder)
    with torch.no_grad():
        word = tiny_tokenizer().convert_tokens_to_ids("hot")
        encoder._model.embeddings.word_embeddings.weight[word] = np.nan
    report = encoder.encode_report(["the word", "the hot word"])
    assert list(report.reasons) == [1]
    assert "finite" in report.reasons[1]
    assert np.isfinite(report.vectors[0]).all()


def test_unknown_tokens_are_counted_and_warned_about(bert_folder, caplog):
    encoder = Encoder.load(bert_folder)
    with caplog.at_level(logging.WARNING):
        assert encoder.encode_report(["the hot word"]).unknown_share == 0
        assert not caplog.records
        report = encoder.encode_report(["안녕하세요 세계", "the"])
    assert report.num_unknown_tokens == 2
    assert report.unknown_share == pytest.approx(2 / 7)
    assert "multilingual" in caplog.text


class OutOfMemoryAbove:
    """A backbone whose device holds only so many tokens."""

    def __init__(self, backbone, num_tokens: int) -> None:
        self.backbone = backbone
        self.num_tokens = num_tokens

    def __getattr__(self, name):
        return getattr(self.backbone, name)

    def blocks(self, batch):
        if batch.num_tokens > self.num_tokens:
            raise torch.OutOfMemoryError("made up")
        return self.backbone.blocks(batch)


def test_out_of_memory_halves_the_budget_and_goes_on(bert_folder, texts):
    encoder = Encoder.load(bert_folder, token_budget=1000)
    want = encoder.encode(texts)
    encoder._backbone = OutOfMemoryAbove(encoder._backbone, 100)
    np.testing.assert_array_equal(encoder.encode(texts), want)
    assert 50 <= encoder.token_budget <= 200


def test_out_of_memory_on_one_text_is_raised(bert_folder):
    encoder = Encoder.load(bert_folder)
    encoder._backbone = OutOfMemoryAbove(encoder._backbone, 3)
    with pytest.raises(torch.OutOfMemoryError):
        encoder.encode(["the hot word"])


def test_automatic_budget_is_one_of_those_tried_and_changes_no_bit(bert_folder, texts):
    encoder = Encoder.load(bert_folder, token_budget="auto")
    np.testing.assert_array_equal(encoder.encode(texts), Encoder.load(bert_folder).encode(texts))
    assert encoder.token_budget in (512, 1024, 2048, 4096)


def nothing(encoder, windows, num_texts, **_) -> EncodedTexts:
    zeros = np.zeros(num_texts, np.int64)
    return EncodedTexts(np.empty((num_texts, 32)), zeros, zeros, {}, 0)


def test_best_budget_is_the_fastest_one(bert_folder, texts, monkeypatch):
    encoder = Encoder.load(bert_folder, token_budget="auto", threads=2)
    clock = {512: 4.0, 1024: 3.0, 2048: 1.0, 4096: 2.0}
    now = [0.0]

    def encode_texts(encoder, sample):
        now[0] += clock[encoder.token_budget]

    monkeypatch.setattr("sbert_core.encoder.probe.encode_texts", encode_texts)
    monkeypatch.setattr("sbert_core.encoder.probe.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("sbert_core.encoder.encoder.encode_windows", nothing)
    encoder.encode(texts)
    assert encoder.token_budget == 1024, "too few texts to tell"
    encoder.encode([f"{text} {number}" for number in range(20) for text in texts])
    assert encoder.token_budget == 2048
    assert now[0] == 2 * sum(clock.values())
