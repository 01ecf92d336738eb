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
from sbert_core.encoder.linear_products import GELU_MIN, Int8Product, pack_linear

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


def int8_reference(x, weight, bias, least=None):
    """Rounded rows times rounded columns, in float64."""
    scale = np.abs(weight).max(1) / 127
    columns = np.round(weight / scale[:, None])
    if least is None:
        step = np.abs(x).max(1, keepdims=True) / 127
        rows = np.floor(x / step + 128.5) - 128
        return rows @ columns.T * step * scale + bias
    step = (x - least).max(1, keepdims=True) / 255
    rows = np.floor((x - least) / step + 0.5)
    return rows @ columns.T * step * scale + bias + least * scale * columns.sum(1)


@pytest.mark.parametrize("least", [None, GELU_MIN])
def test_int8_product_is_that_of_rounded_numbers(least):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((70, 48)).astype(np.float32)
    x = x if least is None else np.maximum(x, least).astype(np.float32)
    weight, bias = (rng.standard_normal(size).astype(np.float32) for size in ((33, 48), 33))
    product = Int8Product(torch.from_numpy(weight), torch.from_numpy(bias), least)
    got = product.project(torch.from_numpy(x)).numpy()
    want = int8_reference(x.astype(np.float64), weight.astype(np.float64), bias, least)
    # A number that lies on the border of two steps may fall to either side.
    assert np.abs(got - want).max() < 0.05
    assert np.median(np.abs(got - want)) < 1e-5


def test_int8_rows_of_zeros_infinity_and_nan_stay_what_they_are():
    weight = torch.ones(4, 8)
    x = torch.zeros(3, 8)
    x[1, 2], x[2, 3] = torch.inf, torch.nan
    out = Int8Product(weight, torch.ones(4)).project(x)
    assert torch.equal(out[0], torch.ones(4))
    assert not out[1:].isfinite().any()


@pytest.mark.parametrize("precision", [Precision.FLOAT32, *NARROW])
def test_rows_of_a_product_have_bits_of_their_own(precision):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 64, generator=generator)
    x = torch.randn(200, 64, generator=generator)
    product = pack_linear(weight, None, precision)
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


@pytest.mark.slow
@pytest.mark.parametrize("precision", NARROW)
def test_saved_copy_of_a_narrow_encoder_has_the_exact_weights(precision, bert_folder, tmp_path):
    Encoder.load(bert_folder, precision=precision).save(tmp_path)
    copy, exact = Encoder.load(tmp_path), Encoder.load(bert_folder)
    np.testing.assert_array_equal(copy.encode(["the word"]), exact.encode(["the word"]))
