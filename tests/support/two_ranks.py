"""One of two ranks on this machine, started by tests/core/training/test_loop.py."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from sbert_core.training.distributed import World
from support.training import loop_of, losses_and_gradients, rows_for, weights


def main() -> None:
    folder, objective, rank, place, *batch = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{place}/meeting", rank=int(rank), world_size=2
    )
    loop = loop_of(
        Path(folder),
        objective,
        rows_for(objective, 12),
        [7, 5],
        world=World(int(rank), 2),
        batch_size=int(batch[0]) if batch else 7,
        epochs=3,
    )
    losses, gradients = losses_and_gradients(loop)
    facts = {"losses": losses, "gradients": gradients, "weights": weights(loop)}
    torch.save(facts, Path(place) / f"rank-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
