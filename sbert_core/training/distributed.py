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

    def average_rows(self, gradient: Tensor, rows: Tensor) -> None:
        """Average a gradient in place of which each rank has filled only a few rows.

        rows: the own ones, each once. A word embedding has 30,000 rows and a batch touches some
        hundreds: to send all of them would be half of a small model's traffic.
        """
        mine = gradient.index_select(0, rows)
        num_rows = torch.zeros(self.size, dtype=torch.int64, device=rows.device)
        num_rows[self.rank] = len(rows)
        counts = self.total(num_rows).tolist()
        every_row, every_value = self.all_rows(rows, counts), self.all_rows(mine, counts)
        gradient.index_fill_(0, rows, 0.0)
        start = 0
        for count in counts:  # rank by rank: the same sums, bit for bit, on every rank
            part = slice(start, start + count)
            gradient.index_add_(0, every_row[part], every_value[part] / self.size)
            start += count

    def total(self, value: Tensor) -> Tensor:
        """The sum over ranks of a value without a gradient."""
        if self.size > 1:
            dist.all_reduce(value)
        return value
