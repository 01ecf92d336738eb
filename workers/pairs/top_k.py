"""Tasks of `pairs --top-k`: a block against all others -> the nearest rows of each row, as ids."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.arrays import ranges
from sbert_core.join.bounded import Edges
from sbert_core.join.duplicates import Alike
from sbert_core.join.edges import EDGE, EdgeWriter, part_edges
from sbert_core.join.top_k import Nearest
from sbert_core.vectors.table import VectorTable
from workers.common.progress_board import Board
from workers.pairs.join_job import BlockOf, JoinJob, opened
from workers.pairs.write import WRITTEN_EDGES, written_tables


def nearest_name(job: JoinJob, block: BlockOf) -> str:
    return f"{job.work}/nearest-{block.number:05d}"


def nearest_rows(
    job: JoinJob, block: BlockOf, others: Sequence[BlockOf], k: int, starts: np.ndarray
) -> int:
    """Write the best rows of each row of a block; how many there are."""
    board = Board(job.run)
    writer = EdgeWriter(job.storage, nearest_name(job, block), starts)
    with tempfile.TemporaryDirectory() as folder:
        own = opened(job, block, Path(folder))
        best = Nearest(own.block, k, job.threshold)
        # A self-join begins at home, where floors rise fast.
        for other in sorted(others, key=lambda o: (o.name != block.name, o.number)):
            theirs = opened(job, other, Path(folder))
            best.meet(theirs.block, theirs.rows, own.rows if job.is_self else None)
            board.add(block.size * other.size, 0)
        edges = best.edges()
        writer.add(Edges(own.rows[edges.a], edges.b, edges.cos))
    board.write()
    return writer.close()


def smallest_members(
    side: VectorTable, alike: Alike, places: np.ndarray, number: int
) -> list[np.ndarray]:
    """Rows of the smallest ids in groups of equal rows."""
    found = []
    for place in places.tolist():
        rows = alike.members(place)
        order = pc.sort_indices(side.ids(rows)).to_numpy()
        found.append(rows[order[:number]])
    return found


def write_nearest(
    job: JoinJob,
    part: tuple[int, int],
    names: Sequence[str],
    k: int,
    bounds: tuple[int, int],
    alike_a: Alike,
    alike_b: Alike,
) -> dict[str, Any] | None:
    """Rows of one part with their k nearest, ties by id. bounds: of the part's rows."""
    number, num_parts = part
    edges = part_edges(job.storage, names, number, num_parts)
    low, high = np.searchsorted(alike_a.first, bounds)
    if job.is_self:
        edges = np.concatenate([edges, _own_group(alike_a, np.arange(low, high))])
        edges = edges[np.argsort(edges["a"], kind="stable")]

    def tables() -> Iterator[pa.Table]:
        for rows, places in _slices(edges, alike_a, alike_b, low, high):
            if (table := _nearest(job, edges, rows, places, k, alike_b)) is not None:
                yield table

    return written_tables(job, f"{number:06d}", tables())


def _own_group(alike: Alike, places: np.ndarray) -> np.ndarray:
    """Edges from a first row to itself, for the rows that equal it."""
    first = alike.first[places[alike.count[places] > 1]]
    edges = np.ones(len(first), EDGE)
    edges["a"] = edges["b"] = first
    return edges


def _slices(
    edges: np.ndarray, alike_a: Alike, alike_b: Alike, low: int, high: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All rows of a part and their first rows, in slices of a bounded number of partners."""
    first, count = alike_a.first[low:high], alike_a.count[low:high]
    rows = alike_a.rows[ranges(alike_a.start[low:high], count)]
    stand_for = alike_b.stand_for(edges["b"])[1]
    total = np.concatenate([[0], np.cumsum(stand_for)])
    begin, end = (np.searchsorted(edges["a"], first, side=side) for side in ("left", "right"))
    group = np.cumsum(np.repeat(total[end] - total[begin], count)) // WRITTEN_EDGES
    cuts = np.flatnonzero(np.diff(group)) + 1
    return zip(np.split(rows, cuts), np.split(np.repeat(first, count), cuts), strict=True)


def _nearest(
    job: JoinJob, edges: np.ndarray, rows: np.ndarray, first: np.ndarray, k: int, alike_b: Alike
) -> pa.Table | None:
    """Some rows with their k nearest."""
    begin, end = (np.searchsorted(edges["a"], first, side=side) for side in ("left", "right"))
    own = edges[ranges(begin, end - begin)]
    start, count = alike_b.stand_for(own["b"])
    b = alike_b.rows[ranges(start, count)]
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
