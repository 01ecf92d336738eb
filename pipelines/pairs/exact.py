"""All pairs of blocks -> all edges."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.pairs import blocks as plan
from pipelines.pairs.setup import Ground
from pipelines.runtime.progress import polled, progress
from pipelines.runtime.tasks import in_order
from sbert_core.join.edges import is_written
from workers.pairs.exact import edges_name, join_blocks


@dataclass(frozen=True, slots=True)
class Found:
    """Where the edges of each part are. certificate: what an approximate join says of itself."""

    starts: np.ndarray
    names: list[list[str]]
    certificate: dict[str, Any] | None = None


def exact_edges(ground: Ground) -> Found:
    """Every block with every other; of a self-join each two blocks once."""
    job = ground.job
    starts = plan.part_starts(ground.blocks_a)
    pairs = [
        (a, b)
        for a in ground.blocks_a
        for b in ground.blocks_b
        if not job.is_self or a.number <= b.number
    ]
    todo = [pair for pair in pairs if not is_written(job.storage, edges_name(job, *pair))]
    left = sum(a.size * b.size // (2 if a.name == b.name else 1) for a, b in todo)
    by = f"{len(todo)} block pairs"
    with progress("pairs", left, by=by, unit="pairs") as advance, polled(job.run, advance):
        in_order(join_blocks, [(job, a, b, starts) for a, b in todo])
    names = [[edges_name(job, a, b) for a, b in pairs if a is own] for own in ground.blocks_a]
    return Found(starts, names)
