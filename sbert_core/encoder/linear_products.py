"""The product of a linear layer on a CPU, in each number format.

In:  float32 rows, a weight and a bias.
Out: the projection of each row, whose bits do not depend on the other rows.

Weights are packed once, for oneDNN. float32 and bfloat16 are rounded in every sum; a row has the
same bits in products of any number of rows from 2 up. For int8 see int8_products.py.

Shapes: T tokens, K inputs, N outputs.
"""

from typing import Protocol

import torch
from torch import Tensor

from sbert_core.choices import Precision
from sbert_core.encoder.int8_products import PACKED_FOR_ROWS, InputRange, Int8Product

HAS_ONEDNN = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


class LinearProduct(Protocol):
    """A packed linear layer, and what a transformer does to its output."""

    def project(self, x_TK: Tensor) -> Tensor:
        """Compute `x @ weight.T + bias`."""
        ...

    def project_bfloat16(self, x_TK: Tensor) -> Tensor:
        """As `project`, rounded to bfloat16."""
        ...

    def project_gelu(self, x_TK: Tensor) -> Tensor:
        """Compute the exact GELU of the projection."""
        ...

    def project_add(self, x_TK: Tensor, residual_TN: Tensor) -> Tensor:
        """Compute `residual` plus the projection; may do so in place."""
        ...


class Float32Product:
    """float32, with what follows the product in the same oneDNN call."""

    def __init__(self, weight_NK: Tensor, bias_N: Tensor | None) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight_NK, PACKED_FOR_ROWS)
        self.bias_N = bias_N

    def project(self, x_TK: Tensor) -> Tensor:
        """Compute `x @ weight.T + bias`."""
        return _linear(x_TK, self.packed, self.bias_N)

    def project_bfloat16(self, x_TK: Tensor) -> Tensor:
        """As `project`, rounded to bfloat16."""
        return self.project(x_TK).to(torch.bfloat16)

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
        return self.project_bfloat16(x_TK).float()

    def project_bfloat16(self, x_TK: Tensor) -> Tensor:
        """As `project`, without the way back to float32."""
        return _linear(x_TK.to(torch.bfloat16), self.packed, self.bias_N)

    def project_gelu(self, x_TK: Tensor) -> Tensor:
        """Compute the exact GELU of the projection, as bfloat16: the next product rounds it."""
        return _linear_gelu(x_TK.to(torch.bfloat16), self.packed, self.bias_N)

    def project_add(self, x_TK: Tensor, residual_TN: Tensor) -> Tensor:
        """Compute `residual` plus the projection, as float32."""
        return residual_TN + _linear(x_TK.to(torch.bfloat16), self.packed, self.bias_N)


def pack_linear(
    weight_NK: Tensor,
    bias_N: Tensor | None,
    precision: Precision,
    input_range: InputRange | None = None,
) -> LinearProduct:
    """The product of a float32 weight in a number format; int8 needs the range of its inputs."""
    if precision is Precision.INT8:
        assert input_range is not None, "int8 divides the range of the inputs into steps"
        return Int8Product(weight_NK, bias_N, input_range)
    if precision is Precision.BFLOAT16:
        return Bfloat16Product(weight_NK, bias_N)
    return Float32Product(weight_NK, bias_N)


def _linear(x_TK: Tensor, packed: Tensor, bias_N: Tensor | None) -> Tensor:
    out_TN: Tensor = torch.ops.mkldnn._linear_pointwise(x_TK, packed, bias_N, "none", [], "")
    return out_TN


def _linear_gelu(x_TK: Tensor, packed: Tensor, bias_N: Tensor | None) -> Tensor:
    out_TN: Tensor = torch.ops.mkldnn._linear_pointwise(x_TK, packed, bias_N, "gelu", [], "none")
    return out_TN
