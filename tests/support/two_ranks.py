"""Two ranks on this machine, started by tests/core/training/test_loop.py.

In:  a base model, an empty folder, and cases as OBJECTIVE:BATCH_SIZE.
Out: rank-0.pt and rank-1.pt: for each case losses, gradients and weights.

One process imports everything and becomes two; the imports take most of the time.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from sbert_core.training.distributed import ProcessGroup
from support.training import loop_of, losses_and_gradients, rows_for, weights


def main() -> None:
    """Become two ranks, and end with the other one's exit code if it failed."""
    folder, place, *cases = sys.argv[1:]
    torch.set_num_threads(1)
    other = os.fork()
    run_rank(int(other == 0), Path(folder), Path(place), cases)
    if other:
        _, status = os.waitpid(other, 0)
        sys.exit(os.waitstatus_to_exitcode(status))


def run_rank(rank: int, folder: Path, place: Path, cases: list[str]) -> None:
    dist.init_process_group("gloo", init_method=f"file://{place}/meeting", rank=rank, world_size=2)
    found = {}
    for case in cases:
        objective, batch_size = case.split(":")
        loop = loop_of(
            folder,
            objective,
            rows_for(objective, 12),
            [7, 5],
            group=ProcessGroup(rank, 2),
            batch_size=int(batch_size),
            epochs=3,
        )
        losses, gradients = losses_and_gradients(loop)
        found[case] = {"losses": losses, "gradients": gradients, "weights": weights(loop)}
    torch.save(found, place / f"rank-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
