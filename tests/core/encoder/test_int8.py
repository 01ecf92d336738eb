"""Products of 8-bit integers against the same sums in numpy, and the ranges they divide."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sbert_core.choices import Precision
from sbert_core.encoder.calibration import (
    CALIBRATION_TEXTS,
    InputRange,
    measure_ranges,
    vocabulary_ids,
)
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.instructions import is_announced
from sbert_core.encoder.int8_products import (
    NUM_SPREAD,
    Int8FeedForward,
    Int8Product,
    _spread_large,
)

pytestmark = pytest.mark.skipif(not is_announced(Precision.INT8), reason="this CPU has no int8")


def rounded_columns(weight):
    """Each output's weights as multiples of 1/127 of their largest."""
    scale = np.abs(weight).max(1, keepdims=True) / 127
    return np.round(weight / scale) * scale


def int8_reference(x, weight, bias, low, high):
    """Rounded rows times rounded columns, in float64."""
    middle, half = (low + high) / 2, (high - low) / 2
    widths = np.sqrt(half / np.abs(weight).max(0))
    size = (half / widths).max() / 126.5
    middle = np.round(middle / (widths * size)) * (widths * size)
    rows = np.clip(np.round((x - middle) / (widths * size)), -128, 127)
    return (rows * size) @ rounded_columns(weight * widths).T + weight @ middle + bias


@pytest.fixture
def numbers():
    """Inputs of very unequal widths, off zero, with their weight, bias and residual."""
    rng = np.random.default_rng(0)
    widths = np.exp(rng.uniform(-2, 2, 48))
    x = (rng.standard_normal((70, 48)) + rng.standard_normal(48)) * widths
    weight, bias = rng.standard_normal((33, 48)) / widths, rng.standard_normal(33)
    return x.astype(np.float32), weight.astype(np.float32), bias.astype(np.float32)


def product_of(x, weight, bias):
    ends = InputRange(*(torch.from_numpy(end) for end in (x.min(0), x.max(0))))
    return Int8Product(torch.from_numpy(weight), torch.from_numpy(bias), ends)


def test_int8_product_is_that_of_rounded_numbers(numbers):
    x, weight, bias = numbers
    got = product_of(x, weight, bias).project(torch.from_numpy(x)).numpy()
    want = int8_reference(*(own.astype(np.float64) for own in (*numbers, x.min(0), x.max(0))))
    # A number on the border of two steps may fall to either side.
    assert np.median(np.abs(got - want)) < 1e-5
    assert np.abs(got - want).max() < 0.1
    exact = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
    assert np.linalg.norm(got - exact) < 0.02 * np.linalg.norm(exact)


def test_int8_values_outside_the_range_are_clipped(numbers):
    x, weight, bias = numbers
    product = product_of(x, weight, bias)
    wide = product.project(torch.from_numpy(x * 1e6 + 1e9))
    assert torch.equal(wide, product.project(torch.from_numpy(x * 1e4 + 1e8)))
    steps = product.steps
    most = torch.from_numpy(x.max(0)) + 128 * steps.size * steps.widths_K
    torch.testing.assert_close(wide[:2], product.project(most.expand(2, -1)))


def test_int8_activation_and_residual_follow_the_product(numbers):
    x, weight, bias = numbers
    product, rows = product_of(x, weight, bias), torch.from_numpy(x)
    plain = product.project(rows)
    torch.testing.assert_close(product.project_gelu(rows), F.gelu(plain), atol=1e-4, rtol=1e-4)
    residual = torch.randn(70, 33, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(product.project_add(rows, residual.clone()), plain + residual)


def test_int8_layer_of_dead_inputs_and_outputs_is_finite():
    ends = InputRange(torch.zeros(8), torch.zeros(8))
    product = Int8Product(torch.zeros(4, 8), torch.ones(4), ends)
    assert torch.equal(product.project(torch.zeros(3, 8)), torch.ones(3, 4))


@pytest.mark.parametrize("outlier", [1.0, 40.0])
def test_int8_block_is_close_to_float32_with_and_without_outliers(outlier):
    """One hidden value in three rows is far larger than all others, as in trained models."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(90, 48, generator=generator)
    x[:, 0] = torch.where(torch.arange(90) % 3 == 0, outlier, 0.0)
    up, down = torch.randn(96, 48, generator=generator) / 7, torch.randn(48, 96) / 10
    up[:, 0] = 0.0
    up[5, 0] = 1.0
    bias = torch.randn(96, generator=generator) / 4
    hidden = F.gelu(x @ up.T + bias)
    want = x + hidden @ down.T
    block = Int8FeedForward(
        (up, bias), (down, None), InputRange(x.amin(0), x.amax(0)), _range_of(hidden)
    )
    error = (block.add_to(x.clone()) - want).norm() / (want - x).norm()
    assert error < 0.02


def _range_of(x):
    return InputRange(x.amin(0), x.amax(0))


def test_large_hidden_values_are_spread_and_others_are_not():
    high = torch.full((100,), 2.0)
    high[7], high[9] = 21.0, -0.1
    column, number, largest = _spread_large(high)
    assert len(column) <= 100 + NUM_SPREAD
    assert largest == pytest.approx(4.2)
    assert torch.equal(column.unique(), torch.arange(100))
    num_columns = torch.bincount(column)
    assert num_columns[7] == number.max() + 1 == 5
    assert (num_columns[torch.arange(100) != 7] == 1).all()
    # The columns of a value add up to it, but for the dip of GELU (0.17) below each border.
    x = torch.linspace(-5.0, 21.0, 200, dtype=torch.float64)[:, None]
    columns = F.gelu(x - number[column == 7] * largest).clamp_max(largest)
    assert ((columns.sum(1) - F.gelu(x[:, 0])).abs() < 0.18).all()


def test_ranges_hold_every_input_and_leave_the_weights_alone(bert_folder):
    encoder = Encoder.load(bert_folder, threads=1)
    model, before = encoder._model, encoder.space()
    texts = encoder.tokenize(["the word", "how many words of the other"]).split()
    ranges = measure_ranges(model, texts)
    seen = {}
    layer = model.encoder.layer[1].intermediate.dense
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.update(x=inputs[0]))
    with torch.no_grad():
        for ids in texts:
            model(input_ids=torch.from_numpy(ids)[None])
            own = ranges[layer.weight]
            assert ((own.low_K <= seen["x"]) & (seen["x"] <= own.high_K)).all()
    hook.remove()
    assert encoder.space() == before
    assert model.dtype is torch.float32


def test_recipe_of_int8_hashes_the_ranges(bert_folder, monkeypatch):
    exact, narrow = Encoder.load(bert_folder), Encoder.load(bert_folder, precision="int8")
    assert exact.recipe(precision=Precision.INT8) == narrow.recipe() != exact.recipe()
    monkeypatch.setattr("sbert_core.encoder.calibration.CALIBRATION_TEXTS", CALIBRATION_TEXTS[:3])
    assert Encoder.load(bert_folder, precision="int8").recipe() != narrow.recipe()


@pytest.mark.parametrize(("vocab_size", "max_length"), [(30_522, 256), (40, 8), (5, 64)])
def test_vocabulary_texts_come_from_all_over_it(vocab_size, max_length):
    texts = vocabulary_ids(vocab_size, max_length)
    ids = np.concatenate(texts)
    assert max(map(len, texts)) <= max_length
    assert ids.min() == 0
    assert vocab_size > ids.max() >= vocab_size - 1 - vocab_size / len(ids)
