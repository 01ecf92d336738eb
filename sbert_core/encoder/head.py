"""Pooled vector -> sentence vector: the modules that follow pooling in a folder.

Shapes: B texts, D dimensions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.SiLU": nn.SiLU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
}

# A product of very few rows takes another kernel and gives other last bits (as for tokens).
MIN_ROWS = 64


class Dense(nn.Module):
    """A linear projection and an activation named as in the folder's configuration.

    Raises ValueError for an activation that is not in `ACTIVATIONS`.
    """

    def __init__(self, linear: nn.Linear, activation: str) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"Dense activation {activation!r} is unknown; known: {', '.join(ACTIVATIONS)}"
            )
        self.linear = linear
        self.activation_name = activation
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x_BD: Tensor) -> Tensor:
        """activation(linear(x)), computed on at least MIN_ROWS rows."""
        num_missing = max(0, MIN_ROWS - len(x_BD))
        filled = F.pad(x_BD, (0, 0, 0, num_missing))
        out_BD: Tensor = self.activation(self.linear(filled))[: len(x_BD)]
        return out_BD


class Normalize(nn.Module):
    """Vectors of length one."""

    def forward(self, x_BD: Tensor) -> Tensor:
        """Compute `x / |x|`."""
        return F.normalize(x_BD, dim=1)


def sentence_vectors(
    pooled_BD: Tensor, head: nn.ModuleList, truncate_dim: int | None, normalize: bool
) -> Tensor:
    """Pooled vectors after the head, cut to `truncate_dim`, of unit length if `normalize`."""
    for module in head:
        pooled_BD = module(pooled_BD)
    cut_BD = pooled_BD[:, :truncate_dim].to(torch.float32)
    return F.normalize(cut_BD, dim=1) if normalize else cut_BD
