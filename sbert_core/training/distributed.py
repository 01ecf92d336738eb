"""Collective operations over the ranks of a training run."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """This process's rank and the number of ranks; with one rank nothing is sent."""

    rank: int = 0
    size: int = 1

    def gather_rows(self, own: Tensor, num_rows: Sequence[int]) -> Tensor:
        """Rows of all ranks, in order of rank; only this rank's rows carry a gradient.

        num_rows: of each rank. Every rank computes the same joint loss, so the gradient with
        respect to its own rows is complete: no backward pass of another rank is needed.
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
        """Average a row-sparse gradient over ranks, in place.

        rows: the rows this rank has filled, each once. A token embedding has 30,000 rows and a
        batch touches some hundreds: sending all of them would be half of a small model's traffic.
        """
        own = gradient.index_select(0, rows)
        num_rows = torch.zeros(self.size, dtype=torch.int64, device=rows.device)
        num_rows[self.rank] = len(rows)
        counts = self.sum_over_ranks(num_rows).tolist()
        all_rows, all_values = self.gather_rows(rows, counts), self.gather_rows(own, counts)
        gradient.index_fill_(0, rows, 0.0)
        start = 0
        for count in counts:  # rank by rank: the same sums, bit for bit, on every rank
            part = slice(start, start + count)
            gradient.index_add_(0, all_rows[part], all_values[part] / self.size)
            start += count

    def sum_over_ranks(self, value: Tensor) -> Tensor:
        """The sum over ranks of a value without a gradient; overwrites the value."""
        if self.size > 1:
            dist.all_reduce(value)
        return value
