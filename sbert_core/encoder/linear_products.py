"""The product of a linear layer on a CPU, in each number format.

In:  float32 rows, a weight and a bias.
Out: the projection of each row, whose bits do not depend on the other rows.

Weights are packed once, for oneDNN. float32 and bfloat16 are rounded in every sum; a row has the
same bits in products of any number of rows from 2 up. int8 has a scale for each row of the input
and each column of the output, and exact 32-bit sums in between.

Shapes: T tokens, K inputs, N outputs.
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from sbert_core.choices import Precision

HAS_ONEDNN = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
PACKED_FOR_ROWS = 1024  # oneDNN's hint; any number gives the same packing
INT8_MAX, UINT8_MAX = 127, 255
UINT8_ZERO = 128
LEAST_RANGE = 1e-30  # of a row of zeros: its steps can still be inverted
GELU_MIN = -0.170041  # GELU has no smaller value


class LinearProduct(Protocol):
    """A packed linear layer, and what a transformer does to its output."""

    def project(self, x_TK: Tensor) -> Tensor:
        """Compute `x @ weight.T + bias`."""
        ...

    def project_gelu(self, x_TK: Tensor) -> Tensor:
        """Compute the exact GELU of the projection."""
        ...

    def project_add(self, x_TK: Tensor, residual_TN: Tensor) -> Tensor:
        """Compute `residual` plus the projection."""
        ...


class Float32Product:
    """float32, with what follows the product in the same oneDNN call."""

    def __init__(self, weight_NK: Tensor, bias_N: Tensor | None) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight_NK, PACKED_FOR_ROWS)
        self.bias_N = bias_N

    def project(self, x_TK: Tensor) -> Tensor:
        """Compute `x @ weight.T + bias`."""
        return _linear(x_TK, self.packed, self.bias_N)

    def project_gelu(self, x_TK: Tensor) -> Tensor:
        """Compute the exact GELU of the projection."""
        return _linear_gelu(x_TK, self.packed, self.bias_N)

    def project_add(self, x_TK: Tensor, residual_TN: Tensor) -> Tensor:
        """Compute `residual` plus the projection."""
        out_TN: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x_TK, residual_TN, self.packed, self.bias_N, "add"
        )
        return out_TN


class Bfloat16Product:
    """bfloat16 factors with float32 sums. Residuals and norms around it stay in float32."""

    def __init__(self, weight_NK: Tensor, bias_N: Tensor | None) -> None:
        half = weight_NK.to(torch.bfloat16)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(half, PACKED_FOR_ROWS)
        self.bias_N = None if bias_N is None else bias_N.to(torch.bfloat16)

    def project(self, x_TK: Tensor) -> Tensor:
        """Compute `x @ weight.T + bias`, as float32."""
        return _linear(x_TK.to(torch.bfloat16), self.packed, self.bias_N).float()

    def project_gelu(self, x_TK: Tensor) -> Tensor:
        """Compute the exact GELU of the projection, as bfloat16: the next product rounds it."""
        return _linear_gelu(x_TK.to(torch.bfloat16), self.packed, self.bias_N)

    def project_add(self, x_TK: Tensor, residual_TN: Tensor) -> Tensor:
        """Compute `residual` plus the projection, as float32."""
        return residual_TN + _linear(x_TK.to(torch.bfloat16), self.packed, self.bias_N)


class Int8Product:
    """8-bit factors with exact sums: rows as unsigned, weights as signed integers.

    least_input: a lower bound of all inputs, if one is known: then the 255 steps of a row lie
    between it and the row's largest value. Otherwise they lie around zero.
    """

    def __init__(
        self, weight_NK: Tensor, bias_N: Tensor | None, least_input: float | None = None
    ) -> None:
        scale_N = weight_NK.abs().amax(1).clamp_min(LEAST_RANGE) / INT8_MAX
        rounded_NK = (weight_NK / scale_N[:, None]).round()
        num_out, num_in = weight_NK.shape
        self.packed = torch.ops.onednn.qlinear_prepack(
            rounded_NK.to(torch.int8), [PACKED_FOR_ROWS, num_in]
        )
        self.scale_N = scale_N
        self.zeros_N = torch.zeros(num_out, dtype=torch.int32)
        self.bias_N = torch.zeros(num_out) if bias_N is None else bias_N.clone()
        self.least_input = least_input
        if least_input is not None:  # inputs are shifted to start at zero
            self.bias_N += least_input * scale_N * rounded_NK.sum(1)

    def project(self, x_TK: Tensor) -> Tensor:
        """Compute `x @ weight.T + bias`."""
        x_TK = x_TK.float()
        if self.least_input is None:
            step_T1 = _largest(x_TK.abs()) / INT8_MAX
            zero, offset = UINT8_ZERO, torch.full_like(step_T1, UINT8_ZERO + 0.5)
        else:
            step_T1 = (_largest(x_TK) - self.least_input) / UINT8_MAX
            zero, offset = 0, 0.5 - self.least_input / step_T1
        rows_TK = torch.mul(x_TK, 1 / step_T1).add_(offset)
        # Adding a half and cutting off the fraction rounds to the nearest in one pass.
        out_TN: Tensor = torch.ops.onednn.qlinear_pointwise(
            rows_TK.to(torch.uint8),
            1.0,
            zero,
            self.packed,
            self.scale_N,
            self.zeros_N,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return out_TN.mul_(step_T1).add_(self.bias_N)

    def project_gelu(self, x_TK: Tensor) -> Tensor:
        """Compute the exact GELU of the projection."""
        return F.gelu(self.project(x_TK))

    def project_add(self, x_TK: Tensor, residual_TN: Tensor) -> Tensor:
        """Compute `residual` plus the projection."""
        return self.project(x_TK).add_(residual_TN)


def projection_precision(precision: Precision) -> Precision:
    """The format of queries, keys and values: bfloat16 in an encoder of int8.

    Scores of attention are their products, so their errors count twice. MiniLM, least cosine of
    10,000 texts and mean loss on five STS sets: 0.987 and 0.04 points; in int8 0.973 and 0.17.
    """
    return Precision.BFLOAT16 if precision is Precision.INT8 else precision


def pack_linear(
    weight_NK: Tensor,
    bias_N: Tensor | None,
    precision: Precision,
    least_input: float | None = None,
) -> LinearProduct:
    """The product of a float32 weight in a number format."""
    if precision is Precision.INT8:
        return Int8Product(weight_NK, bias_N, least_input)
    if precision is Precision.BFLOAT16:
        return Bfloat16Product(weight_NK, bias_N)
    return Float32Product(weight_NK, bias_N)


def _largest(x_TK: Tensor) -> Tensor:
    """The largest value of each row; never zero."""
    return x_TK.amax(1, keepdim=True).clamp_min(LEAST_RANGE)


def _linear(x_TK: Tensor, packed: Tensor, bias_N: Tensor | None) -> Tensor:
    out_TN: Tensor = torch.ops.mkldnn._linear_pointwise(x_TK, packed, bias_N, "none", [], "")
    return out_TN


def _linear_gelu(x_TK: Tensor, packed: Tensor, bias_N: Tensor | None) -> Tensor:
    out_TN: Tensor = torch.ops.mkldnn._linear_pointwise(x_TK, packed, bias_N, "gelu", [], "none")
    return out_TN
