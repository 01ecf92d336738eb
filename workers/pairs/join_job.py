"""Tasks that prepare a join: parts of vectors -> digests, samples, turned blocks on disk.

Rows are numbered over a whole artifact, file by file. A block holds the first rows of groups of
equal vectors; it is written once and mapped by every task that joins it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sbert_core.join.bounded import Block, Turn
from sbert_core.join.duplicates import vector_digests
from sbert_core.storage import Storage, storage_at
from sbert_core.vectors.row_ranges import Piece
from sbert_core.vectors.table import VectorTable
from workers.common.files import local_file

ARRAYS = ("short", "vectors", "rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinJob:
    """What is the same for all tasks. b is a where rows are joined with each other.

    is_ordered: both sides hold rows of one corpus, so the smaller id of a pair comes first.
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
        return storage_at(self.out)

    @property
    def is_self(self) -> bool:
        return self.a.name == self.b.name

    def side(self, name: str) -> VectorTable:
        return self.a if name == self.a.name else self.b


@dataclass(frozen=True, slots=True)
class BlockOf:
    """Some rows of one side: pieces, each with the number of its file's first row."""

    side: str
    number: int
    pieces: tuple[tuple[Piece, int], ...]

    @property
    def name(self) -> str:
        return f"block-{self.side}-{self.number:05d}"

    @property
    def size(self) -> int:
        return sum(piece.size for piece, _ in self.pieces)

    @property
    def first_row(self) -> int:
        piece, first = self.pieces[0]
        return first + (0 if piece.rows is None else int(piece.rows[0]))


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """A block, and the numbers of its rows."""

    block: Block
    rows: np.ndarray


def part_digests(side: VectorTable, piece: Piece) -> np.ndarray:
    """What tells equal vectors."""
    return vector_digests(side.decoded(piece, piece.sha256))


def piece_rows(side: VectorTable, piece: Piece) -> tuple[list[Any], np.ndarray]:
    """Ids and vectors of some rows."""
    return side.table(piece, ["id"])["id"].to_pylist(), side.decoded(piece)


def write_block(job: JoinJob, block: BlockOf, turn: Turn) -> None:
    """Turned vectors as files that can be mapped."""
    side = job.side(block.side)
    pieces = [side.decoded(piece) for piece, _ in block.pieces]
    made = Block.of(np.concatenate(pieces), turn)
    rows = [
        first + (np.arange(piece.num_rows) if piece.rows is None else piece.rows)
        for piece, first in block.pieces
    ]
    arrays = (made.short, made.vectors, np.concatenate(rows))
    with job.storage.work_folder() as folder:
        for name, array in zip(ARRAYS, arrays, strict=True):
            path = Path(folder) / name
            with path.open("wb") as file:
                np.save(file, array)
            job.storage.put_file(array_name(job, block, name), path)


def array_name(job: JoinJob, block: BlockOf, name: str) -> str:
    return f"{job.work}/{block.name}.{name}.npy"


def is_block_written(job: JoinJob, block: BlockOf) -> bool:
    return job.storage.stat(array_name(job, block, ARRAYS[-1])) is not None


def opened(job: JoinJob, block: BlockOf, folder: Path) -> OpenBlock:
    paths = [local_file(job.storage, array_name(job, block, name), folder) for name in ARRAYS]
    short, vectors, rows = (np.load(path, mmap_mode="c") for path in paths)
    return OpenBlock(Block(short, vectors), rows)
