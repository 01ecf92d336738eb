"""All pairs of blocks -> all edges."""

from dataclasses import dataclass

import ray

from pipelines.artifacts.certificate import Certificate
from pipelines.pairs import blocks as plan
from pipelines.pairs.setup import JoinSetup
from pipelines.runtime.progress import poll_progress, progress
from pipelines.runtime.tasks import in_order
from sbert_core.arrays import Int64Array
from sbert_core.join.edges import EdgePart, is_written
from workers.pairs.exact import count_part, edges_name, join_blocks
from workers.pairs.join_job import JoinJob


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """Edges on disk, and what was counted while they were found.

    starts: the first row of each part. names: by part, of the tasks that wrote its edges.
    num_pairs: pairs of rows these edges and groups of equal rows expand to; the rows of the written
    files must be as many. certificate: of an approximate join.
    """

    starts: Int64Array
    names: list[list[str]]
    num_pairs: int
    certificate: Certificate | None = None

    @property
    def parts(self) -> list[EdgePart]:
        """The edges, part by part."""
        return edge_parts(self.names)


def edge_parts(names: list[list[str]]) -> list[EdgePart]:
    """Parts of edges. names: by part, of the tasks to read."""
    return [EdgePart(own, number, len(names)) for number, own in enumerate(names)]


def join_exact(setup: JoinSetup) -> JoinResult:
    """Join every block with every other; of a self-join each two blocks once."""
    job = setup.job
    starts = plan.part_starts(setup.blocks_a)
    groups = ray.put(setup.written_groups)
    pairs = [
        [(a, b) for b in setup.blocks_b if not job.is_self or a.number <= b.number]
        for a in setup.blocks_a
    ]
    names = [[edges_name(job, a, b) for a, b in own] for own in pairs]
    finished = finished_names(job, names)
    is_finished = {name for own in finished for name in own}
    todo = [(a, b) for own in pairs for a, b in own if edges_name(job, a, b) not in is_finished]
    left = sum(a.size * b.size // (2 if a.name == b.name else 1) for a, b in todo)
    by = f"{len(todo)} block pairs"
    with progress("pairs", left, by=by, unit="pairs") as advance, poll_progress(job.run, advance):
        counts = in_order(join_blocks, [(job, a, b, starts, groups) for a, b in todo])
    num_found = sum(count.pairs for count in counts) + count_finished(job, finished, groups)
    return JoinResult(starts=starts, names=names, num_pairs=num_found + setup.num_equal_pairs)


def finished_names(job: JoinJob, names: list[list[str]]) -> list[list[str]]:
    """Of the tasks of each part, those that an earlier attempt finished."""
    return [[name for name in own if is_written(job.storage, name)] for own in names]


def count_finished(job: JoinJob, names: list[list[str]], groups: ray.ObjectRef) -> int:
    """Pairs of rows that edges of an earlier attempt expand to, counted from their files."""
    calls = [(job, part, groups) for part in edge_parts(names) if part.names]
    return sum(count.pairs for count in in_order(count_part, calls)) if calls else 0
