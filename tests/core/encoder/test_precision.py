"""Number formats on a CPU: exact where they must be, close where they may differ, or refused."""

import subprocess
import sys
from itertools import product

import numpy as np
import pytest
import torch
from support.encoders import FLAT_FAMILIES, PADDED_FAMILIES
from support.speed import cases

from sbert_core.choices import Precision
from sbert_core.encoder import instructions
from sbert_core.encoder.device import resolve_precision
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.instructions import why_unsupported
from sbert_core.encoder.int8_products import InputRange
from sbert_core.encoder.linear_products import pack_linear

CPU = torch.device("cpu")
QUICK = ("bert", "gemma3")
NARROW = [
    pytest.param(
        precision,
        marks=pytest.mark.skipif(
            not instructions.is_announced(precision), reason=f"this CPU has no {precision}"
        ),
    )
    for precision in (Precision.BFLOAT16, Precision.INT8)
]
# Tiny models with random weights are less forgiving than trained ones.
LEAST_COS = {Precision.BFLOAT16: 0.999, Precision.INT8: 0.98}


@pytest.mark.parametrize("precision", [Precision.FLOAT32, *NARROW])
def test_rows_of_a_product_have_bits_of_their_own(precision):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 64, generator=generator)
    x = torch.randn(200, 64, generator=generator)
    product = pack_linear(weight, None, precision, InputRange(x.amin(0), x.amax(0)))
    whole = product.project(x)
    for first, end in ((0, 64), (64, 130), (130, 200), (3, 90)):
        assert torch.equal(product.project(x[first:end]), whole[first:end])


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize(
    ("family",), cases(product([*FLAT_FAMILIES, *PADDED_FAMILIES]), lambda own: own in QUICK)
)
def test_vectors_of_every_family_are_close_to_float32(
    family, precision, plain_encoder_folder, texts
):
    folder = plain_encoder_folder(family)
    exact = Encoder.load(folder, threads=1)
    narrow = Encoder.load(folder, precision=precision, threads=1)
    assert (narrow.layout, narrow.precision) == (exact.layout, precision)
    cos = (exact.encode(texts) * narrow.encode(texts)).sum(1)
    assert LEAST_COS[precision] < cos.min() < 1
    assert narrow.space() == exact.space()
    assert narrow.recipe() != exact.recipe()


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize(("family",), cases(product(FLAT_FAMILIES), lambda own: own in QUICK))
def test_bits_depend_on_the_text_alone_in_every_format(
    family, precision, plain_encoder_folder, texts
):
    encoder = Encoder.load(plain_encoder_folder(family), precision=precision, threads=1)
    assert encoder.batch_invariant
    want = encoder.encode(texts)
    for budget in (1, 64, 333, 4096):
        encoder.token_budget = budget
        np.testing.assert_array_equal(encoder.encode(texts), want)
    np.testing.assert_array_equal(encoder.encode(texts[7:11]), want[7:11])


def test_auto_on_a_cpu_is_float32_with_its_recipe(bert_folder):
    encoder = Encoder.load(bert_folder, precision="auto")
    assert encoder.precision is Precision.FLOAT32
    assert encoder.recipe() == Encoder.load(bert_folder).recipe()
    assert encoder.recipe(precision=Precision.AUTO) != encoder.recipe()


@pytest.mark.parametrize("wanted", [Precision.FLOAT16])
def test_format_a_cpu_lacks_is_refused_with_those_it_has(wanted):
    with pytest.raises(ValueError, match="float32, bfloat16, int8"):
        resolve_precision(wanted, CPU)


@pytest.mark.parametrize("precision", [Precision.BFLOAT16, Precision.INT8])
def test_format_without_instructions_is_refused(precision, monkeypatch):
    monkeypatch.setattr(instructions, "is_announced", lambda _: False)
    why_unsupported.cache_clear()
    try:
        with pytest.raises(ValueError, match="float32"):
            resolve_precision(precision, CPU)
    finally:
        why_unsupported.cache_clear()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "signal 4"),
        ("import sys; sys.exit('a product is off by 3')", "off by 3"),
        ("", None),
    ],
)
def test_instructions_that_are_announced_are_tried_in_a_process(code, reason, monkeypatch):
    monkeypatch.setattr(instructions, "PROBE", code)
    monkeypatch.setattr(instructions, "is_announced", lambda _: True)
    why_unsupported.cache_clear()
    try:
        found = why_unsupported(Precision.INT8)
    finally:
        why_unsupported.cache_clear()
    assert found is reason is None or reason in found


@pytest.mark.parametrize(
    ("precision", "has_remedy"), [(Precision.FLOAT16, True), (Precision.FLOAT32, False)]
)
def test_text_that_leaves_the_range_of_float16_has_the_remedy_in_its_reason(
    precision, has_remedy, bert_folder, monkeypatch
):
    """As on a GPU: the vectors of long texts are infinite."""
    encoder = Encoder.load(bert_folder, threads=1)
    encoder.precision = precision
    forward = encoder.forward

    def overflowing(batch, *options):
        vectors = forward(batch, *options)
        vectors[torch.from_numpy(batch.lengths > 9)] *= torch.inf
        return vectors

    monkeypatch.setattr(encoder, "forward", overflowing)
    reasons = encoder.encode_report(["the word", "the word " * 20, None, "of"]).reasons
    assert list(reasons) == [1, 2]
    assert ("bfloat16" in reasons[1]) is has_remedy
    assert reasons[2] == "null"


@pytest.mark.slow
def test_probe_finds_sums_that_saturate():
    """Without VNNI two 8-bit products are added in 16 bits, which end at 32,767."""
    code = (
        "import torch\n"
        "from sbert_core.encoder import linear_products\n"
        "from sbert_core.encoder.instructions import check_products\n"
        "class Saturating(linear_products.Int8Product):\n"
        "    def project(self, x):\n"
        "        return super().project(x).clamp(-130, 130)\n"
        "linear_products.Int8Product = Saturating\n"
        "check_products('int8')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "off by" in done.stderr


@pytest.mark.parametrize("precision", NARROW)
def test_text_without_finite_states_is_invalid_in_every_format(precision, bert_folder):
    encoder = Encoder.load(bert_folder, precision=precision, threads=1)
    texts = ["the word", "how many", "the other"]
    token = int(encoder.tokenize(["how"]).ids_T[1])
    with torch.no_grad():
        encoder.token_embedding.weight[token] = torch.nan
    assert list(encoder.encode_report(texts).reasons) == [1]


@pytest.mark.slow
@pytest.mark.parametrize("word", ["fp16", "INT8", None])
def test_unknown_format_is_refused_with_those_there_are(word, bert_folder):
    with pytest.raises(ValueError, match=f"{word}.* use one of auto, float32, bfloat16"):
        Encoder.load(bert_folder, precision=word)


@pytest.mark.parametrize("precision", NARROW)
def test_saved_copy_of_a_narrow_encoder_has_the_exact_weights(precision, bert_folder, tmp_path):
    Encoder.load(bert_folder, precision=precision).save(tmp_path)
    copy, exact = Encoder.load(tmp_path), Encoder.load(bert_folder)
    np.testing.assert_array_equal(copy.encode(["the word"]), exact.encode(["the word"]))
