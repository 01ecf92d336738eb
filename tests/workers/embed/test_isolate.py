"""Which texts are blamed for crashes of the encoder's process; tests/chaos has a text that kills.

The child is forked instead of spawned: a fresh interpreter with torch takes seconds.
"""

import errno
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
from support.speed import cases

from sbert_core.encoder.documents import DocumentVectors
from workers.embed.isolate import CRASH_REASON, encode_excluding_crashers

BLANK = "is blank"


@pytest.fixture(autouse=True)
def forked_children(monkeypatch):
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: context)


class LengthEncoder:
    """Stands for an encoder: a text's vector is its length; blank texts have a reason."""

    def __init__(self, *crashers: str) -> None:
        self.crashers = crashers

    def load(self) -> None:
        return None

    def encode(self, encoder: None, texts: list) -> DocumentVectors:
        if set(self.crashers) & set(texts):
            os._exit(1)
        places = np.array([n for n, text in enumerate(texts) if text.strip()], np.int64)
        lengths = np.array([len(texts[n]) for n in places], np.int64)
        none = np.zeros(len(places), np.int64)
        return DocumentVectors(
            vectors=lengths[:, None].astype(np.float32),
            document=places,
            chunk=none,
            start_char=none,
            end_char=lengths,
            num_tokens=lengths,
            num_lost_tokens=none,
            reasons={n: BLANK for n, text in enumerate(texts) if not text.strip()},
            num_unknown_tokens=0,
            distinct_lengths=lengths,
        )


class CrashesOnce(LengthEncoder):
    """Stands for a process that is killed from outside, one time."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def encode(self, encoder: None, texts: list) -> DocumentVectors:
        if not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return super().encode(encoder, texts)


class Doomed(LengthEncoder):
    """Stands for an encoder where memory lacks: its process is lost over any text."""

    def encode(self, encoder: None, texts: list) -> DocumentVectors:
        os._exit(1)


class Unloadable(LengthEncoder):
    def load(self) -> None:
        os._exit(1)


class Broken(LengthEncoder):
    def encode(self, encoder: None, texts: list) -> DocumentVectors:
        raise KeyError("lost")


@pytest.mark.parametrize(("seed",), cases(zip(range(4)), lambda own: own < 2))
def test_texts_that_crash_are_left_out_and_all_others_encoded(seed):
    rng = np.random.default_rng(seed)
    texts = [f"text {'x' * n}" for n in range(13)] + [" "]
    crashers = [texts[n] for n in rng.choice(13, seed, replace=False)]
    found = encode_excluding_crashers(LengthEncoder(*crashers), texts)
    want = [(n, len(text)) for n, text in enumerate(texts[:13]) if text not in crashers]
    vectors = found.vectors[:, 0].astype(int).tolist()
    assert list(zip(found.document.tolist(), vectors, strict=True)) == want
    blamed = {texts.index(text): CRASH_REASON for text in crashers}
    assert found.reasons == {13: BLANK, **blamed}


def test_no_text_is_blamed_for_a_process_that_is_killed_once(tmp_path):
    found = encode_excluding_crashers(CrashesOnce(tmp_path / "mark"), ["one", "three"])
    assert (found.document.tolist(), found.reasons) == ([0, 1], {})


@pytest.mark.parametrize("source", [Doomed(), Unloadable()])
def test_no_text_is_blamed_where_every_process_dies(source):
    with pytest.raises(OSError) as caught:
        encode_excluding_crashers(source, ["one"])
    assert caught.value.errno == errno.ENOMEM


def test_error_of_the_encoder_is_raised_as_it_is():
    with pytest.raises(KeyError):
        encode_excluding_crashers(Broken(), ["one"])
