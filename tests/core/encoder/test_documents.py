"""Documents under every policy for long ones, against each document on its own."""

import random

import numpy as np
import pytest
from support.encoders import WORDS

from sbert_core.choices import LongTexts
from sbert_core.encoder.documents import DocumentVectors, encode_documents
from sbert_core.encoder.encoder import Encoder

COLUMNS = (
    "vectors",
    "chunk",
    "start_char",
    "end_char",
    "num_tokens",
    "num_lost_tokens",
)


@pytest.fixture(scope="module")
def encoder(bert_folder):
    return Encoder.load(bert_folder, max_length=12, threads=1)


def random_documents(rng: random.Random) -> list[object]:
    """None to six: short, of several windows, repeated, and such as have no vector."""
    kinds = [
        lambda: " ".join(rng.choices(WORDS, k=rng.randint(1, 9))),
        lambda: " ".join(rng.choices(WORDS, k=rng.randint(10, 60))),
        lambda: "the same long text " * 7,
        lambda: rng.choice([None, "", "  \n", 3, "\x00", "x\udc80"]),
    ]
    return [rng.choice(kinds)() for _ in range(rng.randint(0, 6))]


def assert_shapes(found: DocumentVectors, dim: int) -> None:
    num_rows = len(found.document)
    assert found.vectors.shape == (num_rows, dim)
    assert found.vectors.dtype == np.float32
    for name in ("document", *COLUMNS[1:]):
        column = getattr(found, name)
        assert column.shape == (num_rows,), name
        assert column.dtype == np.int64, name


@pytest.mark.parametrize("long", list(LongTexts))
@pytest.mark.parametrize("seed", range(25))
def test_encoded_documents_of_any_number_equal_each_on_its_own(long, seed, encoder):
    texts = random_documents(random.Random(seed))
    found = encode_documents(encoder, texts, long=long)
    assert_shapes(found, encoder.dim)
    alone = [encode_documents(encoder, [text], long=long) for text in texts]
    assert found.reasons == {n: one.reasons[0] for n, one in enumerate(alone) if one.reasons}
    assert found.document.tolist() == [n for n, one in enumerate(alone) for _ in one.document]
    for name in COLUMNS:
        want = [row for one in alone for row in getattr(one, name)]
        assert np.array_equal(
            getattr(found, name), np.array(want).reshape(getattr(found, name).shape)
        ), name


@pytest.mark.parametrize("long", list(LongTexts))
@pytest.mark.parametrize("texts", [[], [None], ["", None, " "]])
def test_encoded_documents_without_a_valid_one_are_no_rows(long, texts, encoder):
    found = encode_documents(encoder, texts, long=long)
    assert_shapes(found, encoder.dim)
    assert len(found.document) == 0
    assert sorted(found.reasons) == list(range(len(texts)))
    assert len(found.distinct_lengths) == found.num_unknown_tokens == 0
