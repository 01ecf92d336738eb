"""Tasks that prepare a join: parts of vectors -> digests, samples, projected blocks on disk.

Rows are numbered over a whole artifact, file by file. A block holds the first rows of groups of
equal vectors; it is written once and mapped by every task that joins it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_core.arrays import BytesArray, Float32Array, Int64Array
from sbert_core.join.bounded import JoinBlock, PcaRotation
from sbert_core.join.duplicates import DuplicateGroups, digest_vectors
from sbert_core.storage import Storage, storage_at
from sbert_core.vectors.row_ranges import RowRange
from sbert_core.vectors.table import VectorTable
from workers.common.files import local_file

ARRAYS = ("short", "vectors", "rows")  # files of a block; `short` holds the projections


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinJob:
    """Settings shared by all tasks. In a self-join `b` is the same side as `a`.

    run: key of the progress board. out: storage of the artifact; work and folder: where edges and
    pairs lie in it. is_ordered: both sides hold rows of one corpus, so the smaller id of a pair
    comes first.
    """

    run: str
    out: str
    work: str
    folder: str
    threshold: float
    a: VectorTable
    b: VectorTable
    is_ordered: bool

    @property
    def storage(self) -> Storage:
        """Where edges and pairs are written."""
        return storage_at(self.out)

    @property
    def is_self(self) -> bool:
        """Are rows joined with rows of the same side?"""
        return self.a.name == self.b.name

    def side(self, name: str) -> VectorTable:
        """The side of that name."""
        return self.a if name == self.a.name else self.b


@dataclass(frozen=True, slots=True)
class JoinGroups:
    """Groups of equal rows of both sides; in a self-join both are the same."""

    a: DuplicateGroups
    b: DuplicateGroups

    def collapse_large(self) -> "JoinGroups":
        """As pairs are written: groups too large to be expanded keep their first row alone."""
        return JoinGroups(self.a.collapse_large(), self.b.collapse_large())

    def count_pairs(self, rows_a: Int64Array, rows_b: Int64Array) -> int:
        """Pairs of rows that edges between first rows expand to."""
        return int((self.a.member_ranges(rows_a)[1] * self.b.member_ranges(rows_b)[1]).sum())


@dataclass(frozen=True, slots=True)
class JoinCount:
    """What a join task found. edges: pairs of distinct vectors; pairs: of rows, as written."""

    edges: int
    pairs: int


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """Some rows of one side: row ranges, each with the number of its file's first row."""

    side: str
    number: int
    pieces: tuple[tuple[RowRange, int], ...]

    @property
    def name(self) -> str:
        """Unique among the blocks of a join."""
        return f"block-{self.side}-{self.number:05d}"

    @property
    def size(self) -> int:
        """Rows of the block."""
        return sum(piece.size for piece, _ in self.pieces)

    @property
    def first_row(self) -> int:
        """The number of its first row."""
        piece, first = self.pieces[0]
        return first + (0 if piece.rows is None else int(piece.rows[0]))


@dataclass(frozen=True, slots=True)
class LoadedBlock:
    """A block in memory or mapped, and the numbers of its rows, rising."""

    block: JoinBlock
    rows: Int64Array


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Ids and vectors of some rows."""

    ids: list[object]
    vectors: Float32Array


def digest_part(side: VectorTable, piece: RowRange) -> BytesArray:
    """Digests of the vectors of one file, whose sha256 is checked here for the whole join."""
    return digest_vectors(side.decode(piece, piece.sha256))


def read_sample(side: VectorTable, piece: RowRange) -> SampledRows:
    """Ids and vectors of the rows of a range."""
    return SampledRows(side.table(piece, ["id"])["id"].to_pylist(), side.decode(piece))


def write_block(job: JoinJob, block: BlockSpec, rotation: PcaRotation) -> None:
    """Write projections, vectors and row numbers of a block as files that can be mapped."""
    side = job.side(block.side)
    pieces = [side.decode(piece) for piece, _ in block.pieces]
    made = JoinBlock.build(np.concatenate(pieces), rotation)
    rows = [
        first + (np.arange(piece.num_rows) if piece.rows is None else piece.rows)
        for piece, first in block.pieces
    ]
    arrays = (made.projected, made.vectors, np.concatenate(rows))
    with job.storage.work_folder() as folder:
        for name, array in zip(ARRAYS, arrays, strict=True):
            path = Path(folder) / name
            with path.open("wb") as file:
                np.save(file, array)
            job.storage.put_file(array_name(job, block, name), path)


def array_name(job: JoinJob, block: BlockSpec, name: str) -> str:
    """File of one of the ARRAYS of a block."""
    return f"{job.work}/{block.name}.{name}.npy"


def is_block_written(job: JoinJob, block: BlockSpec) -> bool:
    """Is the last of the block's files there?"""
    return job.storage.stat(array_name(job, block, ARRAYS[-1])) is not None


def load_block(job: JoinJob, block: BlockSpec, folder: Path) -> LoadedBlock:
    """Map a written block. folder: for copies where the storage is remote."""
    paths = [local_file(job.storage, array_name(job, block, name), folder) for name in ARRAYS]
    projected, vectors, rows = (np.load(path, mmap_mode="c") for path in paths)
    return LoadedBlock(JoinBlock(projected, vectors), rows)
