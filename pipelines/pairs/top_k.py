"""Every block with all others -> the k nearest rows of each row."""

import numpy as np
import ray

from pipelines.artifacts.manifest import DataFile
from pipelines.pairs import blocks as plan
from pipelines.pairs.setup import Ground
from pipelines.runtime.progress import polled, progress
from pipelines.runtime.tasks import in_order
from sbert_core.join.duplicates import Alike
from sbert_core.join.edges import is_written
from workers.pairs.top_k import nearest_name, nearest_rows, smallest_members, write_nearest


def nearest_files(ground: Ground, k: int) -> list[DataFile]:
    """Exact: nothing is missed, ties go to the smaller id."""
    job = ground.job
    starts = plan.part_starts(ground.blocks_a)
    names = [nearest_name(job, block) for block in ground.blocks_a]
    todo = [
        block
        for block, name in zip(ground.blocks_a, names, strict=True)
        if not is_written(job.storage, name)
    ]
    left = sum(a.size * b.size for a in todo for b in ground.blocks_b)
    by = f"{len(todo)} blocks"
    with progress("nearest", left, by=by, unit="pairs") as advance, polled(job.run, advance):
        in_order(nearest_rows, [(job, block, ground.blocks_b, k, starts) for block in todo])
    ends = [*starts[1:].tolist(), job.a.num_rows]
    shared = [ray.put(ground.alike[job.a.name]), ray.put(_few_members(ground, k))]
    made = in_order(
        write_nearest,
        [
            (job, (number, len(starts)), [names[number]], k, (start, end), *shared)
            for number, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True))
        ],
    )
    return [DataFile(**file) for file in made if file is not None]


def _few_members(ground: Ground, k: int) -> Alike:
    """Groups of equal rows, of which no more can be among the nearest than k and the row itself."""
    alike = ground.alike[ground.job.b.name]
    places = np.flatnonzero(alike.count > k + 1)
    if not len(places):
        return alike
    [found] = in_order(smallest_members, [(ground.job.b, alike, places, k + 1)])
    return alike.shortened(dict(zip(places.tolist(), found, strict=True)))
