"""Edges between numbered rows -> the files of a pairs artifact."""

import numpy as np
import ray

from pipelines.pairs.exact import JoinResult
from pipelines.pairs.setup import JoinSetup
from pipelines.runtime.tasks import in_order
from sbert_core.arrays import Int64Array
from sbert_core.data_file import DataFile
from sbert_core.join.duplicates import MAX_EXPANDED_GROUP, DuplicateGroups
from workers.pairs.join_job import JoinJob
from workers.pairs.write import (
    WRITTEN_PAIRS,
    PairAnnotator,
    write_empty,
    write_equal,
    write_groups,
    write_part,
)


def write_pairs(
    setup: JoinSetup, found: JoinResult, annotate: PairAnnotator | None = None
) -> list[DataFile]:
    """Write pairs of different vectors by part, then pairs of equal ones.

    annotate: adds columns. The files' rows add up to `found.num_pairs`.
    """
    job = setup.job
    groups = ray.put(setup.written_groups)
    made = in_order(write_part, [(job, part, groups, annotate) for part in found.parts])
    files = [file for file in made if file is not None]
    if job.is_self:
        places = enumerate(_bounded_places(setup.groups_a), start=len(found.parts))
        calls = [(job, number, groups, some, annotate) for number, some in places]
        files += in_order(write_equal, calls)
    return files


def write_no_pairs(job: JoinJob, annotate: PairAnnotator | None = None) -> list[DataFile]:
    """A file without rows, for an artifact without pairs."""
    return [write_empty(job, annotate)]


def write_large_groups(setup: JoinSetup) -> list[DataFile]:
    """Write groups of equal rows that are too large to be expanded to pairs, a file for a side."""
    job = setup.job
    sides = [job.a] if job.is_self else [job.a, job.b]
    large = [side for side in sides if len(setup.groups[side.name].large_groups())]
    made = in_order(write_groups, [(job, side, setup.groups[side.name]) for side in large])
    return [file.made_from(side=side.name) for side, file in zip(large, made, strict=True)]


def _bounded_places(groups: DuplicateGroups) -> list[Int64Array]:
    """Places of groups whose pairs are written, in parts of a bounded number of pairs."""
    places = np.flatnonzero((groups.count > 1) & (groups.count <= MAX_EXPANDED_GROUP))
    count = groups.count[places]
    part = np.cumsum(count * (count - 1) // 2) // WRITTEN_PAIRS
    return np.split(places, np.flatnonzero(np.diff(part)) + 1) if len(places) else []
