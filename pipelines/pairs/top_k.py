"""Every block with all others -> the k nearest rows of each row. Exact: nothing is missed."""

import numpy as np
import ray

from pipelines.pairs import blocks as plan
from pipelines.pairs.exact import JoinResult, edge_parts, finished_names
from pipelines.pairs.setup import JoinSetup
from pipelines.runtime.progress import poll_progress, progress
from pipelines.runtime.tasks import in_order
from sbert_core.arrays import Int64Array
from sbert_core.data_file import DataFile
from sbert_core.join.duplicates import DuplicateGroups
from workers.pairs.join_job import JoinGroups
from workers.pairs.top_k import (
    count_nearest_part,
    find_nearest,
    nearest_name,
    smallest_members,
    write_nearest,
)


def join_top_k(setup: JoinSetup, k: int) -> JoinResult:
    """Find the k nearest of every first row, ties included. A block's edges are one part."""
    job = setup.job
    starts = plan.part_starts(setup.blocks_a)
    groups = ray.put(JoinGroups(setup.groups_a, setup.groups_b))
    names = [[nearest_name(job, block)] for block in setup.blocks_a]
    finished = finished_names(job, names)
    todo = [block for block, own in zip(setup.blocks_a, finished, strict=True) if not own]
    left = sum(a.size * b.size for a in todo for b in setup.blocks_b)
    by = f"{len(todo)} blocks"
    with progress("nearest", left, by=by, unit="pairs") as advance, poll_progress(job.run, advance):
        calls = [(job, block, setup.blocks_b, k, starts, groups) for block in todo]
        counts = in_order(find_nearest, calls)
    bounds = _row_bounds(setup, starts)
    recounts = [
        (job, part, k, bounds[part.number], groups) for part in edge_parts(finished) if part.names
    ]
    if recounts:
        counts += in_order(count_nearest_part, recounts)
    num_pairs = sum(count.pairs for count in counts)
    return JoinResult(starts=starts, names=names, num_pairs=num_pairs)


def write_top_k(setup: JoinSetup, found: JoinResult, k: int) -> list[DataFile]:
    """Write every row with its k nearest; ties go to the smaller id."""
    groups = ray.put(JoinGroups(setup.groups_a, _limit_members(setup, k)))
    bounds = _row_bounds(setup, found.starts)
    calls = [(setup.job, part, k, bounds[part.number], groups) for part in found.parts]
    return [file for file in in_order(write_nearest, calls) if file is not None]


def _row_bounds(setup: JoinSetup, starts: Int64Array) -> list[tuple[int, int]]:
    """The rows of each part: first, and one behind the last."""
    ends = [*starts[1:].tolist(), setup.job.a.num_rows]
    return list(zip(starts.tolist(), ends, strict=True))


def _limit_members(setup: JoinSetup, k: int) -> DuplicateGroups:
    """Groups with their k + 1 smallest ids: no more can be nearest to a row, itself included."""
    groups = setup.groups_b
    places = np.flatnonzero(groups.count > k + 1)
    if not len(places):
        return groups
    [found] = in_order(smallest_members, [(setup.job.b, groups, places, k + 1)])
    return groups.replace_members(dict(zip(places.tolist(), found, strict=True)))
