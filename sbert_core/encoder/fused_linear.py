"""Linear layers together with the operations that follow them in a transformer.

In:  flat states and torch linear layers.
Out: a projection: plain, through an activation, or added to the residual; a feed-forward block.

On a CPU each is one oneDNN call on weights that are packed once, in the number format of the
encoder (see linear_products.py): with float32 the whole model was 7-11 % faster than with torch's
own products on an AMD EPYC (MiniLM, two threads, medians). On other devices, and under autograd,
plain torch.

Shapes: T tokens, D dimensions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import GELUActivation

from sbert_core.choices import Precision
from sbert_core.encoder.calibration import InputRanges
from sbert_core.encoder.int8_products import Int8FeedForward
from sbert_core.encoder.linear_products import HAS_ONEDNN, LinearProduct, pack_linear

Activation = Callable[[Tensor], Tensor]
PackedT = TypeVar("PackedT")


@dataclass(frozen=True, slots=True)
class LinearFormat:
    """The number format of linear layers, and the ranges of their inputs that int8 needs."""

    precision: Precision = Precision.FLOAT32
    ranges: InputRanges = field(default_factory=dict)

    def pack(self, linears: Sequence[nn.Linear]) -> LinearProduct:
        """A linear layer."""
        [linear] = linears
        return pack_linear(*_parameters(linear), self.precision, self.ranges.get(linear.weight))

    def pack_projections(self, linears: Sequence[nn.Linear], query_scale: float) -> LinearProduct:
        """Queries, scaled, keys and values as one product."""
        weights, biases = zip(*(_parameters(linear) for linear in linears), strict=True)
        scales = (query_scale, 1.0, 1.0)
        weight_NK = torch.cat([own * scale for own, scale in zip(weights, scales, strict=True)])
        bias_N = torch.cat(
            [
                weight.new_zeros(len(weight)) if bias is None else bias * scale
                for weight, bias, scale in zip(weights, biases, scales, strict=True)
            ]
        )
        return pack_linear(weight_NK, bias_N, self.precision, self.ranges.get(linears[0].weight))

    def pack_feed_forward(self, linears: Sequence[nn.Linear]) -> Int8FeedForward:
        """The two linear layers of a block, in int8."""
        up, down = linears
        return Int8FeedForward(
            _parameters(up), _parameters(down), self.ranges[up.weight], self.ranges[down.weight]
        )


FLOAT32 = LinearFormat()


def _parameters(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
    return linear.weight.detach(), None if linear.bias is None else linear.bias.detach()


class PackedWeights(Generic[PackedT]):
    """What `pack` makes of linear layers, made again when training has changed a weight."""

    def __init__(
        self, linears: Sequence[nn.Linear], pack: Callable[[Sequence[nn.Linear]], PackedT]
    ) -> None:
        self._linears = linears
        self._pack = pack
        self._packed: tuple[list[tuple[int, int]], PackedT] | None = None

    def get(self, x_TD: Tensor) -> PackedT | None:
        """The packed layers; None where plain torch must compute them."""
        if torch.is_grad_enabled():
            self._packed = None  # fused optimisers change weights without a new version
            return None
        if not HAS_ONEDNN or x_TD.device.type != "cpu" or x_TD.dtype is torch.float64:
            return None
        weights = [linear.weight for linear in self._linears]
        version = [(weight._version, weight.data_ptr()) for weight in weights]
        if self._packed is None or self._packed[0] != version:
            self._packed = version, self._pack(self._linears)
        return self._packed[1]


class FusedLinear:
    """A linear layer with packed weights."""

    def __init__(self, linear: nn.Linear, number_format: LinearFormat = FLOAT32) -> None:
        self.linear = linear
        self._packed = PackedWeights([linear], number_format.pack)

    def __call__(self, x_TD: Tensor) -> Tensor:
        """Compute `linear(x)`."""
        product = self._packed.get(x_TD)
        out_TD: Tensor = self.linear(x_TD) if product is None else product.project(x_TD)
        return out_TD

    def with_activation(self, x_TD: Tensor, activation: Activation) -> Tensor:
        """activation(linear(x)), in one call for the exact GELU, which most encoders use."""
        product = self._packed.get(x_TD)
        if product is None or not is_exact_gelu(activation):
            return activation(self(x_TD))
        return product.project_gelu(x_TD)

    def with_residual(self, x_TD: Tensor, residual_TD: Tensor) -> Tensor:
        """Compute `residual + linear(x)`; may overwrite the residual."""
        product = self._packed.get(x_TD)
        if product is None:
            out_TD: Tensor = residual_TD + self.linear(x_TD)
            return out_TD
        return product.project_add(x_TD, residual_TD)


class FusedProjections:
    """Queries, keys and values of a layer.

    In float32 each is a product of its own. In bfloat16 and int8 they are one product, which gives
    one tensor of bfloat16: queries, which have the scale of attention, keys, values.
    """

    def __init__(
        self, linears: Sequence[nn.Linear], number_format: LinearFormat, query_scale: float
    ) -> None:
        self._each = [FusedLinear(linear, number_format) for linear in linears]
        self._is_one = number_format.precision is not Precision.FLOAT32
        self._all = PackedWeights(
            linears, partial(number_format.pack_projections, query_scale=query_scale)
        )

    def __call__(self, x_TD: Tensor) -> tuple[Tensor, ...]:
        """The output of each layer, in order; or one tensor, where they are one product."""
        product = self._all.get(x_TD) if self._is_one else None
        if product is None:
            return tuple(linear(x_TD) for linear in self._each)
        return (product.project_bfloat16(x_TD),)


class FusedFeedForward:
    """The feed-forward block of a layer: up, activation, down, dropout, residual.

    In int8 with the exact GELU the values in between are rounded as they are computed.
    """

    def __init__(
        self,
        up: nn.Linear,
        activation: Activation,
        down: nn.Linear,
        dropout: nn.Dropout,
        number_format: LinearFormat,
    ) -> None:
        self.up = FusedLinear(up, number_format)
        self.activation = activation
        self.down = FusedLinear(down, number_format)
        self.dropout = dropout
        is_int8 = number_format.precision is Precision.INT8
        self._is_one = is_int8 and is_exact_gelu(activation)
        self._both = PackedWeights([up, down], number_format.pack_feed_forward)

    def __call__(self, x_TD: Tensor) -> Tensor:
        """Compute `x + dropout(down(activation(up(x))))`; may overwrite `x`."""
        block = self._both.get(x_TD) if self._is_one else None
        if block is not None:
            return block.add_to(x_TD)
        return add_residual(
            self.down, self.dropout, self.up.with_activation(x_TD, self.activation), x_TD
        )


def add_residual(
    linear: FusedLinear, dropout: nn.Dropout | None, x: Tensor, residual: Tensor
) -> Tensor:
    """Compute `residual + dropout(linear(x))`; may overwrite the residual."""
    if dropout is not None and dropout_rate(dropout):
        out: Tensor = residual + dropout(linear(x))
        return out
    return linear.with_residual(x, residual)


def dropout_rate(dropout: nn.Dropout | None) -> float:
    """The share that a dropout drops: none outside training."""
    return dropout.p if dropout is not None and dropout.training else 0.0


class PackedLinear(nn.Linear):
    """A linear layer of a model's own forward, in the number format of the encoder.

    Has the parameters of the layer it replaces, so that saving and training see no difference.
    """

    def __init__(self, linear: nn.Linear, number_format: LinearFormat) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._packed = PackedWeights([self], number_format.pack)

    def forward(self, x: Tensor) -> Tensor:
        """Compute `linear(x)`."""
        product = self._packed.get(x)
        if product is None:
            return super().forward(x)
        return product.project(x.flatten(0, -2)).view(*x.shape[:-1], -1)


def pack_linears(model: nn.Module, number_format: LinearFormat) -> None:
    """Replace the linear layers of a model, in place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and type(child) in (nn.Linear, PackedLinear):
                setattr(module, name, PackedLinear(child, number_format))


def is_exact_gelu(activation: Activation) -> bool:
    """Is this GELU itself, not one of its approximations?"""
    return isinstance(activation, GELUActivation) and activation.act is F.gelu
