"""Tasks of the approximate join: rows go to cells, cells are joined, a sample is searched exactly.

Rows are sent to their cells as records of a shuffle on disk: a task reads what belongs to its group
of cells and nothing else, from a local disk as from an object store.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_core.arrays import Float32Array, Int64Array, RecordArray
from sbert_core.join.bounded import Edges, JoinBlock, cosine_join
from sbert_core.join.certificate import cosine_bands, num_bands
from sbert_core.join.edges import EdgePart, EdgeWriter
from sbert_core.join.ivf import IvfPartition
from sbert_core.vectors.grouped_file import read_group, write_groups
from workers.common.progress_board import ProgressBoard
from workers.pairs.join_job import BlockSpec, JoinGroups, JoinJob, load_block

SHUFFLED_ROWS = 4096  # of a file of the shuffle; copies for probed cells come on top


@dataclass(frozen=True, slots=True)
class CellLayout:
    """Cells, and the group of cells each belongs to: a group is joined by one task."""

    cells: IvfPartition
    group: Int64Array  # by cell
    dim: int

    @property
    def num_groups(self) -> int:
        """Groups of cells."""
        return int(self.group[-1]) + 1

    @property
    def num_leading(self) -> int:
        """Coordinates that cells are learned from."""
        return self.cells.centroids.shape[1]

    @property
    def record(self) -> np.dtype[np.void]:
        """A row in the shuffle: number, cell, projection, vector."""
        return np.dtype(
            [
                ("row", "<i8"),
                ("cell", "<i4"),
                ("short", "<f4", (self.num_leading + 1,)),
                ("vector", "<f4", (self.dim,)),
            ]
        )


@dataclass(frozen=True, slots=True)
class ProbeRound:
    """One round of the join: number 0 joins home cells, later ones probe within these margins."""

    number: int
    low: float
    high: float

    @property
    def is_home(self) -> bool:
        """Are rows joined in their home cells?"""
        return self.number == 0


def read_projections(job: JoinJob, block: BlockSpec, places: Int64Array) -> Float32Array:
    """Leading coordinates of some rows, to learn cells from."""
    with tempfile.TemporaryDirectory() as folder:
        return load_block(job, block, Path(folder)).block.projected[places, :-1]


def shuffle_name(job: JoinJob, probe: ProbeRound, block: BlockSpec, number: int) -> str:
    """Name of a file of the shuffle; a block has `num_shuffles` of them."""
    return f"{job.work}/cells-{probe.number}-{block.name}-{number:04d}"


def num_shuffles(block: BlockSpec) -> int:
    """Files of the shuffle that a block is written to."""
    return -(-block.size // SHUFFLED_ROWS)


def shuffle_rows(job: JoinJob, block: BlockSpec, layout: CellLayout, probe: ProbeRound) -> int:
    """Write a block's rows as records, once for each home or probed cell; returns how many."""
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        rows = load_block(job, block, Path(folder))
        leading = rows.block.projected[:, :-1]
        for number in range(num_shuffles(block)):
            first = number * SHUFFLED_ROWS
            some = leading[first : first + SHUFFLED_ROWS]
            if probe.is_home:
                place, cell = np.arange(len(some)), layout.cells.assign(some)
            else:
                place, cell = layout.cells.probe_cells(some, probe.low, probe.high)
            records = np.empty(len(place), layout.record)
            place = place + first
            records["row"], records["cell"] = rows.rows[place], cell
            records["short"] = rows.block.projected[place]
            records["vector"] = rows.block.vectors[place]
            name = shuffle_name(job, probe, block, number)
            write_groups(job.storage, name, layout.group[cell], records, layout.num_groups)
            total += len(place)
    return total


@dataclass(frozen=True, slots=True)
class CellRecords:
    """Records of one group of cells, by cell."""

    records: RecordArray

    @classmethod
    def read(
        cls, job: JoinJob, names: Sequence[str], group: int, layout: CellLayout
    ) -> "CellRecords":
        """Read one group of cells. names: files of the shuffle."""
        runs = [
            read_group(job.storage, name, group, layout.num_groups, layout.record) for name in names
        ]
        records = np.concatenate([np.empty(0, layout.record), *runs])
        return cls(records[np.argsort(records["cell"], kind="stable")])

    def blocks(self, cells: Int64Array) -> Iterator[tuple[JoinBlock, Int64Array]]:
        """The rows of each cell."""
        low = np.searchsorted(self.records["cell"], cells)
        high = np.searchsorted(self.records["cell"], cells, side="right")
        short = np.ascontiguousarray(self.records["short"])
        for start, stop in zip(low.tolist(), high.tolist(), strict=True):
            own = self.records[start:stop]
            yield JoinBlock(short[start:stop], own["vector"]), own["row"]


@dataclass(frozen=True, slots=True)
class ShuffleFiles:
    """Files of the shuffle, by side."""

    homes_a: list[str]
    homes_b: list[str]
    probes_a: list[str]
    probes_b: list[str]


def join_cells(
    job: JoinJob,
    layout: CellLayout,
    group: int,
    probe: ProbeRound,
    files: ShuffleFiles,
    starts: Int64Array,
) -> int:
    """Write the edges of one round between the rows of some cells; returns how many."""
    board = ProgressBoard(job.run)
    writer = EdgeWriter(job.storage, cell_edges_name(job, probe, group), starts)
    cells = np.flatnonzero(layout.group == group)
    home_a = CellRecords.read(job, files.homes_a, group, layout)
    home_b = home_a if job.is_self else CellRecords.read(job, files.homes_b, group, layout)
    if probe.is_home:
        joins = [(home_a, home_b)]
    else:
        joins = [(CellRecords.read(job, files.probes_a, group, layout), home_b)]
        if not job.is_self:
            joins.append((home_a, CellRecords.read(job, files.probes_b, group, layout)))
    for left, right in joins:
        is_same = left is right
        for (a, rows_a), (b, rows_b) in zip(left.blocks(cells), right.blocks(cells), strict=True):
            for edges in cosine_join(a, b, job.threshold, is_same=is_same):
                first, second = rows_a[edges.a], rows_b[edges.b]
                if job.is_self:
                    first, second = np.minimum(first, second), np.maximum(first, second)
                writer.add(Edges(first, second, edges.cos))
    board.add(1, 0)
    board.write()
    return writer.close()


def cell_edges_name(job: JoinJob, probe: ProbeRound, group: int) -> str:
    """Name of the edges of one round and group of cells."""
    return f"{job.work}/edges-{probe.number}-{group:05d}"


# -- edges found, and edges of a sample ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EdgeCounts:
    """Ends of the edges of a part, how many partners were found for each, and pairs by band.

    Pairs and partners are counted as they are written: a first row counts for all its group.
    """

    a: Int64Array
    count_a: Int64Array
    b: Int64Array
    count_b: Int64Array
    bands: Int64Array


def count_edges(job: JoinJob, part: EdgePart, groups: JoinGroups) -> EdgeCounts:
    """Count the distinct edges of a part. groups: collapsed, as pairs are written."""
    edges = part.read(job.storage)
    size_a = groups.a.member_ranges(edges["a"])[1]
    size_b = groups.b.member_ranges(edges["b"])[1]
    a, place_a = np.unique(edges["a"], return_inverse=True)
    b, place_b = np.unique(edges["b"], return_inverse=True)
    band, number = cosine_bands(edges["cos"], job.threshold), num_bands(job.threshold)
    return EdgeCounts(
        a,
        np.bincount(place_a, size_b, len(a)).astype(np.int64),
        b,
        np.bincount(place_b, size_a, len(b)).astype(np.int64),
        np.bincount(band, size_a * size_b, number).astype(np.int64),
    )


def edges_touching(
    job: JoinJob, part: EdgePart, rows_a: Int64Array, rows_b: Int64Array
) -> RecordArray:
    """Edges of a part that have an end among some rows."""
    edges = part.read(job.storage)
    return edges[np.isin(edges["a"], rows_a) | np.isin(edges["b"], rows_b)]


def read_sampled_rows(
    job: JoinJob, block: BlockSpec, rows: Int64Array
) -> tuple[Int64Array, Float32Array, Float32Array]:
    """Numbers, projections and vectors of some rows of a block."""
    with tempfile.TemporaryDirectory() as folder:
        found = load_block(job, block, Path(folder))
        places = np.flatnonzero(np.isin(found.rows, rows))
        return found.rows[places], found.block.projected[places], found.block.vectors[places]


@dataclass(frozen=True, slots=True)
class ExactPairs:
    """True pairs of sampled rows, and the margin at which a join of cells finds each."""

    row: Int64Array
    partner: Int64Array
    cos: Float32Array
    margin: Float32Array


def find_exact_pairs(
    job: JoinJob,
    block: BlockSpec,
    sample: tuple[Int64Array, Float32Array, Float32Array],
    is_same_side: bool,
    cells: IvfPartition,
) -> ExactPairs:
    """Every row of a block that reaches the threshold with a sampled row."""
    rows, short, vectors = sample
    found: list[tuple[Int64Array, Int64Array, Float32Array, Float32Array]] = []
    with tempfile.TemporaryDirectory() as folder:
        other = load_block(job, block, Path(folder))
        for edges in cosine_join(JoinBlock(short, vectors), other.block, job.threshold):
            row, partner = rows[edges.a], other.rows[edges.b]
            leading = short[edges.a, :-1], other.block.projected[edges.b, :-1]
            keep = (row != partner) if is_same_side else np.ones(len(row), bool)
            margin = cells.required_margins(*leading)
            found.append((row[keep], partner[keep], edges.cos[keep], margin[keep]))
    columns = zip(*found, strict=True) if found else ([], [], [], [])
    kinds = (np.int64, np.int64, np.float32, np.float32)
    return ExactPairs(
        *(np.concatenate([np.empty(0, k), *own]) for own, k in zip(columns, kinds, strict=True))
    )
