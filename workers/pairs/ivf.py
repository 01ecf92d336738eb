"""Tasks of the approximate join: rows go to cells, cells are joined, a sample is looked up exactly.

Rows travel to their cells as records of a shuffle on disk: a task reads what belongs to its group
of cells and nothing else, from a local disk as from an object store.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_core.join.bounded import Block, Edges, joined
from sbert_core.join.certificate import bands_of, num_bands
from sbert_core.join.duplicates import Alike
from sbert_core.join.edges import EdgeWriter, part_edges
from sbert_core.join.ivf import Cells
from sbert_core.vectors.shuffle import read_run, write_runs
from workers.common.progress_board import Board
from workers.pairs.join_job import BlockOf, JoinJob, opened

SETTLED_ROWS = 4096  # of a file of the shuffle; their copies in other cells come on top


@dataclass(frozen=True, slots=True)
class Layout:
    """Cells, and the group of cells each belongs to: a group is joined by one task."""

    cells: Cells
    group: np.ndarray  # by cell
    dim: int

    @property
    def num_groups(self) -> int:
        return int(self.group[-1]) + 1

    @property
    def num_leading(self) -> int:
        return self.cells.centroids.shape[1]

    @property
    def record(self) -> np.dtype:
        return np.dtype(
            [
                ("row", "<i8"),
                ("cell", "<i4"),
                ("short", "<f4", (self.num_leading + 1,)),
                ("vector", "<f4", (self.dim,)),
            ]
        )


@dataclass(frozen=True, slots=True)
class Reach:
    """One round of the join: rows at home (low and high 0), or visits within these margins."""

    number: int
    low: float
    high: float

    @property
    def is_home(self) -> bool:
        return self.number == 0


def leading_rows(job: JoinJob, block: BlockOf, places: np.ndarray) -> np.ndarray:
    """Leading dimensions of some rows, to learn cells from."""
    with tempfile.TemporaryDirectory() as folder:
        return opened(job, block, Path(folder)).block.short[places, :-1]


def shuffle_name(job: JoinJob, reach: Reach, block: BlockOf, number: int) -> str:
    return f"{job.work}/cells-{reach.number}-{block.name}-{number:04d}"


def num_shuffles(block: BlockOf) -> int:
    return -(-block.size // SETTLED_ROWS)


def settle_rows(job: JoinJob, block: BlockOf, layout: Layout, reach: Reach) -> int:
    """Write a block's rows as records, once for each cell they live in or visit; how many."""
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        rows = opened(job, block, Path(folder))
        leading = rows.block.short[:, :-1]
        for number in range(num_shuffles(block)):
            first = number * SETTLED_ROWS
            some = leading[first : first + SETTLED_ROWS]
            if reach.is_home:
                place, cell = np.arange(len(some)), layout.cells.homes(some)
            else:
                place, cell = layout.cells.visits(some, reach.low, reach.high)
            records = np.empty(len(place), layout.record)
            place = place + first
            records["row"], records["cell"] = rows.rows[place], cell
            records["short"] = rows.block.short[place]
            records["vector"] = rows.block.vectors[place]
            name = shuffle_name(job, reach, block, number)
            write_runs(job.storage, name, layout.group[cell], records, layout.num_groups)
            total += len(place)
    return total


@dataclass(frozen=True, slots=True)
class Settled:
    """Records of one group of cells, by cell."""

    records: np.ndarray

    @classmethod
    def read(cls, job: JoinJob, names: Sequence[str], group: int, layout: Layout) -> "Settled":
        runs = [
            read_run(job.storage, name, group, layout.num_groups, layout.record) for name in names
        ]
        records = np.concatenate([np.empty(0, layout.record), *runs])
        return cls(records[np.argsort(records["cell"], kind="stable")])

    def blocks(self, cells: np.ndarray) -> Iterator[tuple[Block, np.ndarray]]:
        """The rows of each cell."""
        low = np.searchsorted(self.records["cell"], cells)
        high = np.searchsorted(self.records["cell"], cells, side="right")
        short = np.ascontiguousarray(self.records["short"])
        for start, stop in zip(low.tolist(), high.tolist(), strict=True):
            own = self.records[start:stop]
            yield Block(short[start:stop], own["vector"]), own["row"]


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Files of the shuffle, by side."""

    homes_a: list[str]
    homes_b: list[str]
    visits_a: list[str]
    visits_b: list[str]


def join_cells(
    job: JoinJob, layout: Layout, group: int, reach: Reach, files: Shuffled, starts: np.ndarray
) -> int:
    """Write the edges of one round between the rows of some cells; how many there are."""
    board = Board(job.run)
    writer = EdgeWriter(job.storage, cell_edges_name(job, reach, group), starts)
    cells = np.flatnonzero(layout.group == group)
    at_home_a = Settled.read(job, files.homes_a, group, layout)
    at_home_b = at_home_a if job.is_self else Settled.read(job, files.homes_b, group, layout)
    if reach.is_home:
        meetings = [(at_home_a, at_home_b)]
    else:
        meetings = [(Settled.read(job, files.visits_a, group, layout), at_home_b)]
        if not job.is_self:
            meetings.append((at_home_a, Settled.read(job, files.visits_b, group, layout)))
    for left, right in meetings:
        is_same = left is right
        for (a, rows_a), (b, rows_b) in zip(left.blocks(cells), right.blocks(cells), strict=True):
            for edges in joined(a, b, job.threshold, is_same=is_same):
                first, second = rows_a[edges.a], rows_b[edges.b]
                if job.is_self:
                    first, second = np.minimum(first, second), np.maximum(first, second)
                writer.add(Edges(first, second, edges.cos))
    board.add(1, 0)
    board.write()
    return writer.close()


def cell_edges_name(job: JoinJob, reach: Reach, group: int) -> str:
    return f"{job.work}/edges-{reach.number}-{group:05d}"


# -- what was found, and what should have been ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundCounts:
    """Ends of the edges of a part, how many rows each was found with, and pairs by band.

    Pairs and partners are counted as they are written: rows that stand for others count for them.
    """

    a: np.ndarray
    count_a: np.ndarray
    b: np.ndarray
    count_b: np.ndarray
    bands: np.ndarray


def count_found(
    job: JoinJob, names: Sequence[str], part: int, num_parts: int, alike_a: Alike, alike_b: Alike
) -> FoundCounts:
    edges = part_edges(job.storage, names, part, num_parts)
    size_a = alike_a.representing().stand_for(edges["a"])[1]
    size_b = alike_b.representing().stand_for(edges["b"])[1]
    a, place_a = np.unique(edges["a"], return_inverse=True)
    b, place_b = np.unique(edges["b"], return_inverse=True)
    band, number = bands_of(edges["cos"], job.threshold), num_bands(job.threshold)
    return FoundCounts(
        a,
        np.bincount(place_a, size_b, len(a)).astype(np.int64),
        b,
        np.bincount(place_b, size_a, len(b)).astype(np.int64),
        np.bincount(band, size_a * size_b, number).astype(np.int64),
    )


def found_among(
    job: JoinJob,
    names: Sequence[str],
    part: int,
    num_parts: int,
    rows_a: np.ndarray,
    rows_b: np.ndarray,
) -> np.ndarray:
    """Edges of a part that have an end among some rows."""
    edges = part_edges(job.storage, names, part, num_parts)
    return edges[np.isin(edges["a"], rows_a) | np.isin(edges["b"], rows_b)]


def taken_rows(job: JoinJob, block: BlockOf, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Numbers, short and whole vectors of some rows of a block."""
    with tempfile.TemporaryDirectory() as folder:
        found = opened(job, block, Path(folder))
        places = np.flatnonzero(np.isin(found.rows, rows))
        return found.rows[places], found.block.short[places], found.block.vectors[places]


@dataclass(frozen=True, slots=True)
class Partners:
    """True pairs of sampled rows, and the margin at which cells would meet them."""

    row: np.ndarray
    partner: np.ndarray
    cos: np.ndarray
    margin: np.ndarray


def true_partners(
    job: JoinJob, block: BlockOf, sample: tuple[np.ndarray, ...], is_same_side: bool, cells: Cells
) -> Partners:
    """Every row of a block that reaches the threshold with a sampled row."""
    rows, short, vectors = sample
    found: list[tuple[np.ndarray, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        other = opened(job, block, Path(folder))
        for edges in joined(Block(short, vectors), other.block, job.threshold):
            row, partner = rows[edges.a], other.rows[edges.b]
            leading = short[edges.a, :-1], other.block.short[edges.b, :-1]
            keep = (row != partner) if is_same_side else np.ones(len(row), bool)
            margin = cells.needed_margins(*leading)
            found.append((row[keep], partner[keep], edges.cos[keep], margin[keep]))
    columns = zip(*found, strict=True) if found else ([], [], [], [])
    kinds = (np.int64, np.int64, np.float32, np.float32)
    return Partners(
        *(np.concatenate([np.empty(0, k), *own]) for own, k in zip(columns, kinds, strict=True))
    )
