"""Products of 8-bit integers on a CPU: one linear layer, or the two of a feed-forward block.

In:  float32 rows, float32 weights, and the range that each input of the layer has.
Out: float32 projections, whose bits do not depend on the other rows: steps are fixed, sums exact.

Three things keep the loss small (MiniLM: least cosine to float32 of 10,000 texts 0.987):
- Each input has a step of its own, so that one wide input does not make the steps of all others
  wide. A wide input hands half of its width (on a logarithmic scale) to its weights, as in
  SmoothQuant (arXiv:2211.10438).
- A step counts from the middle of an input's range, not from zero.
- The few hidden values of a feed-forward block that grow ten times as large as the others are
  spread over several columns (`_spread_large`): the least cosine is 0.972 without.

Shapes: T tokens, K inputs, M hidden values, N outputs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

PACKED_FOR_ROWS = 1024  # oneDNN's hint; any number gives the same packing
INT8_MAX, UINT8_MAX = 127, 255
UINT8_ZERO = 128
# float32 has no fractions from here on: adding it rounds, and the lowest byte holds a number below
# 256. So rows are rounded in three passes, not five.
ROUNDER = 1.5 * 2**23
GELU_MIN = -0.170041  # GELU has no smaller value
LEAST_SHARE = 2.0**-8  # of the widest range or weight: what lies below counts as that
LEAST_SCALE = 1e-30  # of an output whose weights are all zero: it can still be inverted
NUM_SPREAD = 16  # columns that large hidden values may be spread over; 1 % of MiniLM's
LEAST_COLUMN = 4.0  # what a column of a spread value holds at least: GELU(4) is 4 - 0.0001


@dataclass(frozen=True, slots=True)
class InputRange:
    """The least and the largest value of each input of a linear layer."""

    low_K: Tensor
    high_K: Tensor


class Int8Weight:
    """A weight as 8-bit integers with a scale per output, packed for oneDNN."""

    def __init__(self, weight_NK: Tensor) -> None:
        num_out, num_in = weight_NK.shape
        self.scale_N = weight_NK.abs().amax(1).clamp_min(LEAST_SCALE) / INT8_MAX
        rounded_NK = (weight_NK / self.scale_N[:, None]).round().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded_NK, [PACKED_FOR_ROWS, num_in])
        self.zeros_N = torch.zeros(num_out, dtype=torch.int32)


class InputSteps:
    """Divides the range of each input into 255 steps.

    The step of input k is `size` times `widths_K[k]`; the layer's weight is multiplied by
    `widths_K`, its bias takes up `middle_K`.
    """

    def __init__(self, weight_NK: Tensor, input_range: InputRange) -> None:
        middle_K = (input_range.low_K + input_range.high_K) / 2
        half_K = _at_least_a_share((input_range.high_K - input_range.low_K) / 2)
        largest_K = _at_least_a_share(weight_NK.abs().amax(0))
        self.widths_K = (half_K / largest_K).sqrt()
        # Half a step of the range is for the shift below, which is a whole number of steps.
        self.size = float((half_K / self.widths_K).max()) / (INT8_MAX - 0.5)
        self._steps_K = 1 / (self.widths_K * self.size)
        # A whole number of steps, so that it can be added together with ROUNDER.
        shift_K = (-middle_K * self._steps_K).round()
        self.middle_K = -shift_K / self._steps_K
        self._shift_K = shift_K + (UINT8_ZERO + ROUNDER)

    def round(self, x_TK: Tensor) -> Tensor:
        """The number of each value's step, from 0 to 255; oneDNN is slow for signed rows."""
        steps_TK = torch.addcmul(self._shift_K, x_TK.float(), self._steps_K)
        bits_TK = steps_TK.clamp_(ROUNDER, ROUNDER + UINT8_MAX).view(torch.int32)
        return bits_TK.to(torch.uint8)


class Int8Product:
    """A linear layer. Raises nothing for values outside the range of its inputs: clips them."""

    def __init__(self, weight_NK: Tensor, bias_N: Tensor | None, input_range: InputRange) -> None:
        self.steps = InputSteps(weight_NK, input_range)
        self.weight = Int8Weight(weight_NK * self.steps.widths_K)
        self.bias_N = weight_NK @ self.steps.middle_K
        if bias_N is not None:
            self.bias_N += bias_N

    def project(self, x_TK: Tensor) -> Tensor:
        """Compute `x @ weight.T + bias`."""
        return self._project(x_TK, "none")

    def project_bfloat16(self, x_TK: Tensor) -> Tensor:
        """As `project`, rounded to bfloat16."""
        return self._project(x_TK, "none", dtype=torch.bfloat16)

    def project_gelu(self, x_TK: Tensor) -> Tensor:
        """Compute the exact GELU of the projection."""
        return self._project(x_TK, "gelu")

    def project_add(self, x_TK: Tensor, residual_TN: Tensor) -> Tensor:
        """Add the projection to `residual`, in place."""
        rows_TK = self.steps.round(x_TK)
        return _add_product(
            rows_TK, self.steps.size, UINT8_ZERO, self.weight, self.bias_N, residual_TN
        )

    def _project(
        self,
        x_TK: Tensor,
        activation: str,
        step: float = 1.0,
        zero: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """The activation of the projection; as an integer dtype, in steps around `zero`."""
        out_TN: Tensor = torch.ops.onednn.qlinear_pointwise(
            self.steps.round(x_TK),
            self.steps.size,
            UINT8_ZERO,
            self.weight.packed,
            self.weight.scale_N,
            self.weight.zeros_N,
            self.bias_N,
            step,
            zero,
            dtype,
            activation,
            [],
            "none",
        )
        return out_TN

    def project_gelu_steps(self, x_TK: Tensor, step: float, zero: int) -> Tensor:
        """The exact GELU of the projection as the number of a step, from 0 to 255."""
        return self._project(x_TK, "gelu", step, zero, torch.uint8)


class Int8FeedForward:
    """Two linear layers with the exact GELU between them, which never leaves 8 bits.

    hidden_range: of the values after GELU.
    """

    def __init__(
        self,
        up: tuple[Tensor, Tensor | None],
        down: tuple[Tensor, Tensor | None],
        input_range: InputRange,
        hidden_range: InputRange,
    ) -> None:
        (up_MK, up_bias_M), (down_NM, down_bias_N) = up, down
        column_M, number_M, largest = _spread_large(hidden_range.high_K)
        self.step = (largest - GELU_MIN) / UINT8_MAX
        self.zero = round(-GELU_MIN / self.step)
        # The largest value that fits is what the next column of a hidden value starts from.
        shift_M = number_M * (UINT8_MAX - self.zero) * self.step
        bias_M = -shift_M if up_bias_M is None else up_bias_M[column_M] - shift_M
        self.up = Int8Product(up_MK[column_M], bias_M, input_range)
        self.down = Int8Weight(down_NM[:, column_M])
        self.down_bias_N = down_NM.new_zeros(len(down_NM)) if down_bias_N is None else down_bias_N

    def add_to(self, x_TK: Tensor) -> Tensor:
        """Add `down(gelu(up(x)))` to `x`, in place."""
        hidden_TM = self.up.project_gelu_steps(x_TK, self.step, self.zero)
        return _add_product(hidden_TM, self.step, self.zero, self.down, self.down_bias_N, x_TK)


def _add_product(
    rows_TK: Tensor,
    step: float,
    zero: int,
    weight: Int8Weight,
    bias_N: Tensor,
    residual_TN: Tensor,
) -> Tensor:
    """Add the product to the residual, in place: 4-7 % less time than into a new tensor."""
    out_TN: Tensor = torch.ops.onednn.qlinear_pointwise.binary(
        rows_TK,
        step,
        zero,
        weight.packed,
        weight.scale_N,
        weight.zeros_N,
        residual_TN,
        bias_N,
        1.0,
        0,
        torch.float32,
        1.0,
        0,
        "sum",
        1.0,
        "none",
        [],
        "",
    )
    return out_TN


def _spread_large(high_M: Tensor) -> tuple[Tensor, Tensor, float]:
    """Columns that hidden values are spread over, so that the largest no longer set the step.

    Returns the hidden value of each column, the column's number among those of that value, and
    the largest value that a column holds. With GELU(x) close to x for large x, a value of three
    columns of at most c is min(x, c) + min(GELU(x - c), c) + GELU(x - 2 c).
    """
    high_M = high_M.clamp_min(-GELU_MIN)
    largest = float(high_M.max())
    # The smallest c for which few enough columns are added: one of high / 1, high / 2, ...
    parts = torch.arange(1, NUM_SPREAD + 2, dtype=high_M.dtype)
    candidates = (high_M.topk(min(len(high_M), NUM_SPREAD + 1)).values[:, None] / parts).flatten()
    for candidate in candidates.sort(descending=True).values.tolist():
        num_added = int(_num_columns(high_M, candidate).sum()) - len(high_M)
        if candidate < LEAST_COLUMN or num_added > NUM_SPREAD:
            break
        largest = candidate
    num_columns_M = _num_columns(high_M, largest)
    column_M = torch.repeat_interleave(torch.arange(len(high_M)), num_columns_M)
    first_M = num_columns_M.cumsum(0) - num_columns_M
    return column_M, torch.arange(len(column_M)) - first_M[column_M], largest


def _num_columns(high_M: Tensor, largest: float) -> Tensor:
    """Columns of at most `largest` that each hidden value takes."""
    return (high_M / largest - 1e-6).ceil().clamp_min(1).long()


def _at_least_a_share(values: Tensor) -> Tensor:
    """The values, none below a small share of the largest, and none zero."""
    return torch.maximum(values, values.max() * LEAST_SHARE).clamp_min(LEAST_SCALE)
