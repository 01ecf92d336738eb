"""Edges between numbered rows -> the files of a pairs artifact."""

import numpy as np
import ray

from pipelines.artifacts.manifest import DataFile
from pipelines.pairs.exact import Found
from pipelines.pairs.setup import Ground
from pipelines.runtime.tasks import in_order
from sbert_core.join.duplicates import LARGEST, Alike
from workers.pairs.join_job import JoinJob
from workers.pairs.write import (
    WRITTEN_EDGES,
    Finish,
    write_equal,
    write_groups,
    write_nothing,
    write_part,
)


def pair_files(ground: Ground, found: Found, finish: Finish | None = None) -> list[DataFile]:
    """Pairs of different vectors by part, then pairs of equal ones."""
    job = ground.job
    own = ground.alike[job.a.name]
    shared = [ray.put(ground.alike[side.name]) for side in (job.a, job.b)]
    total = len(found.starts)
    made = in_order(
        write_part, [(job, n, total, some, *shared, finish) for n, some in enumerate(found.names)]
    )
    if job.is_self:
        groups = enumerate(_in_bounds(own), start=total)
        calls = [(job, number, shared[0], some, finish) for number, some in groups]
        made += in_order(write_equal, calls)
    return [DataFile(**file) for file in made if file is not None]


def no_pairs(job: JoinJob, finish: Finish | None = None) -> list[DataFile]:
    """A file without rows, for an artifact without pairs."""
    return [DataFile(**write_nothing(job, finish))]


def group_files(ground: Ground) -> list[DataFile]:
    """Groups of equal rows that are too large to be written as pairs."""
    job = ground.job
    sides = [side for side in (job.a, job.b) if side.name in ground.alike]
    sides = sides[:1] if job.is_self else sides
    large = [side for side in sides if len(ground.alike[side.name].large())]
    made = in_order(write_groups, [(job, side, ground.alike[side.name]) for side in large])
    return [
        DataFile(**file, source={"side": side.name}) for side, file in zip(large, made, strict=True)
    ]


def _in_bounds(alike: Alike) -> list[np.ndarray]:
    """Groups whose pairs are written, in parts of a bounded number of them."""
    places = np.flatnonzero((alike.count > 1) & (alike.count <= LARGEST))
    count = alike.count[places]
    part = np.cumsum(count * (count - 1) // 2) // WRITTEN_EDGES
    return np.split(places, np.flatnonzero(np.diff(part)) + 1) if len(places) else []
