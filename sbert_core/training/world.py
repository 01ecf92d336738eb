"""The ranks of a training run, as one of them sees the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class World:
    """This rank and how many there are; alone, nothing is sent."""

    rank: int = 0
    size: int = 1

    def all_rows(self, own: Tensor, num_rows: Sequence[int]) -> Tensor:
        """Rows of all ranks, by rank; only the own ones carry a gradient.

        num_rows: of each rank. Every rank computes the same joint loss, so the gradient of its own
        rows is whole: nobody else's pass over them is needed.
        """
        if self.size == 1:
            return own
        most = max(num_rows)
        padding = [0, 0] * (own.dim() - 1) + [0, most - len(own)]
        filled = F.pad(own.detach(), padding).contiguous()
        pieces = [torch.empty_like(filled) for _ in range(self.size)]
        dist.all_gather(pieces, filled)
        cut = [piece[:rows] for piece, rows in zip(pieces, num_rows, strict=True)]
        cut[self.rank] = own
        return torch.cat(cut)

    def total(self, value: Tensor) -> Tensor:
        """The sum over ranks of a value without a gradient."""
        if self.size > 1:
            dist.all_reduce(value)
        return value
