"""The rows of each rank at each step: a pure function of seed, epoch and rank.

In:  the number of rows of every shard, the number of ranks, the batch size.
Out: equal numbers of steps for all ranks, every row once an epoch, and an order that can be
     continued at any step without replaying earlier ones.

Rank r has shards r, r + W, ...; their order and the order of rows inside each are shuffled every
epoch. Ranks have unequal numbers of rows, so each spreads its rows evenly over the common number
of steps: batches differ by one row at most, and no row is dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSampler:
    """The order of rows in one training run.

    shard_rows: rows of each shard of all ranks. Raises ValueError if a rank would have none.
    """

    shard_rows: tuple[int, ...]
    world_size: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if min(self.num_rows(rank) for rank in range(self.world_size)) < 1:
            total = sum(self.shard_rows)
            raise ValueError(
                f"{self.world_size} workers, but {total} rows in {len(self.shard_rows)} shards "
                "leave one without rows; use fewer --workers, or prepare more shards"
            )

    def shards(self, rank: int) -> list[int]:
        """Shard numbers of a rank."""
        return list(range(rank, len(self.shard_rows), self.world_size))

    def num_rows(self, rank: int) -> int:
        """Rows of a rank in one epoch."""
        return sum(self.shard_rows[shard] for shard in self.shards(rank))

    @property
    def num_steps(self) -> int:
        """Steps of an epoch."""
        most = max(self.num_rows(rank) for rank in range(self.world_size))
        return -(-most // self.batch_size)

    def bound(self, rank: int, step: int) -> int:
        """Number of the first row of a step, among the rank's rows in the order of an epoch."""
        return step * self.num_rows(rank) // self.num_steps

    def step_rows(self, step: int) -> list[int]:
        """Rows of each rank at a step."""
        ranks = range(self.world_size)
        return [self.bound(rank, step + 1) - self.bound(rank, step) for rank in ranks]

    def epoch(self, rank: int, epoch: int) -> Iterator[tuple[int, np.ndarray]]:
        """Shards and the order of their rows, for one epoch of one rank."""
        rng = np.random.default_rng([self.seed, epoch, rank])
        shards = self.shards(rank)
        for number in rng.permutation(len(shards)).tolist():
            shard = shards[number]
            row_rng = np.random.default_rng([self.seed, epoch, shard, 1])
            yield shard, row_rng.permutation(self.shard_rows[shard])

    def batches(
        self, rank: int, epoch: int, first_step: int = 0
    ) -> Iterator[list[tuple[int, np.ndarray]]]:
        """For each step from `first_step` on: shards and the rows to take of each, in order."""
        step, start = first_step, 0  # `start`: the shard's first row among the rank's rows
        batch: list[tuple[int, np.ndarray]] = []
        for shard, rows in self.epoch(rank, epoch):
            end = start + len(rows)
            while step < self.num_steps and self.bound(rank, step) < end:
                stop = self.bound(rank, step + 1)
                first, last = max(self.bound(rank, step), start), min(stop, end)
                if first < last:
                    batch.append((shard, rows[first - start : last - start]))
                if stop > end:
                    break
                yield batch
                batch = []
                step += 1
            start = end
