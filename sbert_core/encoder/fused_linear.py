"""A linear layer together with the operation that follows it in a transformer.

In:  flat states and a torch linear layer.
Out: its projection: plain, through an activation, or added to the residual.

On a CPU each is one oneDNN call on weights that are packed once, in the number format of the
encoder (see linear_products.py): with float32 the whole model was 7-11 % faster than with torch's
own products on an AMD EPYC (MiniLM, two threads, medians). On other devices, and under autograd,
plain torch.

Shapes: T tokens, D dimensions.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import GELUActivation

from sbert_core.choices import Precision
from sbert_core.encoder.linear_products import HAS_ONEDNN, LinearProduct, pack_linear


class PackedLinears:
    """Linear layers with one input, as one product. Weights that training changed are repacked.

    least_input: a lower bound of the inputs, where the layer before has one.
    """

    def __init__(
        self,
        linears: Sequence[nn.Linear],
        precision: Precision,
        least_input: float | None = None,
    ) -> None:
        self.linears = linears
        self.precision = precision
        self.least_input = least_input
        self._packed: tuple[list[tuple[int, int]], LinearProduct] | None = None

    def product(self, x_TD: Tensor) -> LinearProduct | None:
        """The packed product; None where plain torch must do it."""
        if torch.is_grad_enabled():
            self._packed = None  # fused optimisers change weights without a new version
            return None
        if not HAS_ONEDNN or x_TD.device.type != "cpu":
            return None
        weights = [linear.weight for linear in self.linears]
        version = [(weight._version, weight.data_ptr()) for weight in weights]
        if self._packed is None or self._packed[0] != version:
            self._packed = version, self._pack(weights)
        return self._packed[1]

    def _pack(self, weights: Sequence[Tensor]) -> LinearProduct:
        if len(weights) == 1:
            bias = self.linears[0].bias
            own = None if bias is None else bias.detach()
            return pack_linear(weights[0].detach(), own, self.precision, self.least_input)
        biases = [
            weight.new_zeros(len(weight)) if linear.bias is None else linear.bias.detach()
            for linear, weight in zip(self.linears, weights, strict=True)
        ]
        weight = torch.cat([weight.detach() for weight in weights])
        return pack_linear(weight, torch.cat(biases), self.precision, self.least_input)


class FusedLinear:
    """A linear layer with packed weights."""

    def __init__(
        self,
        linear: nn.Linear,
        precision: Precision = Precision.FLOAT32,
        least_input: float | None = None,
    ) -> None:
        self.linear = linear
        self._packed = PackedLinears([linear], precision, least_input)

    def __call__(self, x_TD: Tensor) -> Tensor:
        """Compute `linear(x)`."""
        product = self._packed.product(x_TD)
        out_TD: Tensor = self.linear(x_TD) if product is None else product.project(x_TD)
        return out_TD

    def with_activation(self, x_TD: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
        """activation(linear(x)), in one call for the exact GELU, which most encoders use."""
        product = self._packed.product(x_TD)
        if product is None or not is_exact_gelu(activation):
            return activation(self(x_TD))
        return product.project_gelu(x_TD)

    def with_residual(self, x_TD: Tensor, residual_TD: Tensor) -> Tensor:
        """Compute `residual + linear(x)`."""
        product = self._packed.product(x_TD)
        if product is None:
            out_TD: Tensor = residual_TD + self.linear(x_TD)
            return out_TD
        return product.project_add(x_TD, residual_TD)


class FusedProjections:
    """Linear layers over the same input: one product, where the number format makes that faster.

    In float32 each stays a product of its own.
    """

    def __init__(self, linears: Sequence[nn.Linear], precision: Precision) -> None:
        self._each = [FusedLinear(linear, precision) for linear in linears]
        self._sizes = [linear.out_features for linear in linears]
        self._all = PackedLinears(linears, precision)

    def __call__(self, x_TD: Tensor) -> tuple[Tensor, ...]:
        """The output of each layer, in order."""
        if self._all.precision is Precision.FLOAT32:
            return tuple(linear(x_TD) for linear in self._each)
        product = self._all.product(x_TD)
        if product is None:
            return tuple(linear(x_TD) for linear in self._each)
        return torch.split(product.project(x_TD), self._sizes, dim=1)


class PackedLinear(nn.Linear):
    """A linear layer of a model's own forward, in the number format of the encoder.

    Has the parameters of the layer it replaces, so that saving and training see no difference.
    """

    def __init__(self, linear: nn.Linear, precision: Precision) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._packed = PackedLinears([self], precision)

    def forward(self, x: Tensor) -> Tensor:
        """Compute `linear(x)`."""
        product = self._packed.product(x)
        if product is None:
            return super().forward(x)
        return product.project(x.flatten(0, -2)).view(*x.shape[:-1], -1)


def pack_linears(model: nn.Module, precision: Precision) -> None:
    """Replace the linear layers of a model, in place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and type(child) in (nn.Linear, PackedLinear):
                setattr(module, name, PackedLinear(child, precision))


def is_exact_gelu(activation: Callable[[Tensor], Tensor]) -> bool:
    """Is this GELU itself, not one of its approximations?"""
    return isinstance(activation, GELUActivation) and activation.act is F.gelu
