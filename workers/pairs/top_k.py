"""Tasks of `pairs --top-k`: a block against all others -> the nearest rows of each row, as ids."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.arrays import Int64Array, RecordArray, concat_ranges
from sbert_core.data_file import DataFile
from sbert_core.join.bounded import Edges
from sbert_core.join.duplicates import DuplicateGroups
from sbert_core.join.edges import EDGE_DTYPE, EdgePart, EdgeWriter
from sbert_core.join.top_k import TopK
from sbert_core.vectors.table import VectorTable
from workers.common.progress_board import ProgressBoard
from workers.pairs.join_job import BlockSpec, JoinCount, JoinGroups, JoinJob, load_block
from workers.pairs.write import WRITTEN_PAIRS, write_tables


def nearest_name(job: JoinJob, block: BlockSpec) -> str:
    """Name of the edges from a block to its nearest rows."""
    return f"{job.work}/nearest-{block.number:05d}"


def find_nearest(
    job: JoinJob,
    block: BlockSpec,
    others: Sequence[BlockSpec],
    k: int,
    starts: Int64Array,
    groups: JoinGroups,
) -> JoinCount:
    """Write the k nearest first rows of each row of a block, ties included.

    others: all blocks of the other side. groups: for the count of pairs.
    """
    board = ProgressBoard(job.run)
    writer = EdgeWriter(job.storage, nearest_name(job, block), starts)
    with tempfile.TemporaryDirectory() as folder:
        own = load_block(job, block, Path(folder))
        best = TopK(own.block, k, job.threshold)
        # A self-join begins with the block itself, so that floors rise fast.
        for other in sorted(others, key=lambda o: (o.name != block.name, o.number)):
            theirs = load_block(job, other, Path(folder))
            best.add_block(theirs.block, theirs.rows, own.rows if job.is_self else None)
            board.add(block.size * other.size, 0)
        edges = best.edges()
        edges = Edges(own.rows[edges.a], edges.b, edges.cos)
        writer.add(edges)
        num_pairs = _count_nearest(job, groups, own.rows, edges.a, edges.b, k)
    board.write()
    return JoinCount(writer.close(), num_pairs)


def count_nearest_part(
    job: JoinJob, part: EdgePart, k: int, bounds: tuple[int, int], groups: JoinGroups
) -> JoinCount:
    """Count what `find_nearest` of an earlier attempt wrote. bounds: of the part's rows."""
    edges = part.read(job.storage)
    low, high = np.searchsorted(groups.a.first, bounds)
    first_rows = groups.a.first[low:high]
    num_pairs = _count_nearest(job, groups, first_rows, edges["a"], edges["b"], k)
    return JoinCount(len(edges), num_pairs)


def _count_nearest(
    job: JoinJob,
    groups: JoinGroups,
    first_rows: Int64Array,
    rows_a: Int64Array,
    rows_b: Int64Array,
    k: int,
) -> int:
    """Pairs that edges expand to: for each member of a group its partners, at most k of them.

    first_rows: all of a block, rising; equal rows are partners without an edge.
    """
    size_a = groups.a.member_ranges(first_rows)[1]
    size_b = groups.b.member_ranges(rows_b)[1]
    partners = np.bincount(np.searchsorted(first_rows, rows_a), size_b, len(first_rows))
    if job.is_self:
        partners += size_a - 1
    return int((size_a * np.minimum(partners, k)).sum())


def smallest_members(
    side: VectorTable, groups: DuplicateGroups, places: Int64Array, num_members: int
) -> list[Int64Array]:
    """Rows of the smallest ids in the groups at some places."""
    found = []
    for place in places.tolist():
        rows = groups.members(place)
        order = pc.sort_indices(side.ids(rows)).to_numpy()
        found.append(rows[order[:num_members]])
    return found


def write_nearest(
    job: JoinJob, part: EdgePart, k: int, bounds: tuple[int, int], groups: JoinGroups
) -> DataFile | None:
    """Write the rows of one part with their k nearest, ties by id; None if there are none.

    bounds: of the part's rows. groups: `b` may hold the smallest ids of large groups alone.
    """
    edges = part.read(job.storage)
    low, high = np.searchsorted(groups.a.first, bounds)
    if job.is_self:
        edges = np.concatenate([edges, _edges_within(groups.a, np.arange(low, high))])
        edges = edges[np.argsort(edges["a"], kind="stable")]

    def tables() -> Iterator[pa.Table]:
        for rows, first in _bounded_rows(edges, groups, low, high):
            if (table := _nearest_table(job, edges, rows, first, k, groups.b)) is not None:
                yield table

    return write_tables(job, f"{part.number:06d}", tables())


def _edges_within(groups: DuplicateGroups, places: Int64Array) -> RecordArray:
    """Edges from a first row to itself, which expand to the rows that equal it."""
    first = groups.first[places[groups.count[places] > 1]]
    edges = np.ones(len(first), EDGE_DTYPE)
    edges["a"] = edges["b"] = first
    return edges


def _bounded_rows(
    edges: RecordArray, groups: JoinGroups, low: int, high: int
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """All rows of a part and their first rows, in slices of a bounded number of partners."""
    first, count = groups.a.first[low:high], groups.a.count[low:high]
    rows = groups.a.rows[concat_ranges(groups.a.start[low:high], count)]
    num_partners = groups.b.member_ranges(edges["b"])[1]
    total = np.concatenate([[0], np.cumsum(num_partners)])
    begin, end = (np.searchsorted(edges["a"], first, side=side) for side in ("left", "right"))
    group = np.cumsum(np.repeat(total[end] - total[begin], count)) // WRITTEN_PAIRS
    cuts = np.flatnonzero(np.diff(group)) + 1
    return zip(np.split(rows, cuts), np.split(np.repeat(first, count), cuts), strict=True)


def _nearest_table(
    job: JoinJob,
    edges: RecordArray,
    rows: Int64Array,
    first: Int64Array,
    k: int,
    groups_b: DuplicateGroups,
) -> pa.Table | None:
    """Some rows with their k nearest. first: the first row of each row's group."""
    begin, end = (np.searchsorted(edges["a"], first, side=side) for side in ("left", "right"))
    own = edges[concat_ranges(begin, end - begin)]
    start, count = groups_b.member_ranges(own["b"])
    b = groups_b.rows[concat_ranges(start, count)]
    a = np.repeat(np.repeat(rows, end - begin), count)
    cos = np.repeat(own["cos"], count)
    if job.is_self:
        is_other = a != b
        a, b, cos = a[is_other], b[is_other], cos[is_other]
    if not len(a):
        return None
    table = pa.table({"a": a, "id_b": job.b.ids(b), "cos": cos})
    keys = [("a", "ascending"), ("cos", "descending"), ("id_b", "ascending")]
    table = table.take(pc.sort_indices(table, keys))
    a = table["a"].to_numpy()
    table = table.filter(pa.array(np.arange(len(a)) - np.searchsorted(a, a) < k))
    ids = job.a.ids(table["a"].to_numpy())
    return pa.table({"id_a": ids, "id_b": table["id_b"], "cos": table["cos"]}).combine_chunks()
