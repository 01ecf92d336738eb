"""Tasks of the exact join: two blocks -> the edges between them.

Each task holds two blocks and a bounded number of edges at a time, whatever the size of the corpus.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.join.bounded import Block, Edges, Turn, joined
from sbert_core.join.duplicates import LARGEST, equal_places
from sbert_core.join.edges import EdgeWriter
from sbert_core.large_strings import wide_array
from sbert_core.vectors.row_ranges import Piece
from workers.common.progress_board import Board
from workers.pairs.join_job import BlockOf, JoinJob, opened


def edges_name(job: JoinJob, a: BlockOf, b: BlockOf) -> str:
    return f"{job.work}/edges-{a.name}-{b.name}"


@dataclass(frozen=True, slots=True)
class OldPart:
    """A file of rows that were joined before; they are turned in memory and never written.

    first: the number of its first row.
    """

    number: int
    piece: Piece
    first: int

    def edges_name(self, job: JoinJob) -> str:
        return f"{job.work}/edges-part-{self.number:05d}"

    def equal_name(self, job: JoinJob) -> str:
        return f"{job.work}/equal-part-{self.number:05d}"

    def equal_rows(self, job: JoinJob) -> np.ndarray:
        """New rows that equal rows of this part, and how many of them."""
        return np.frombuffer(job.storage.read(self.equal_name(job)), np.int64).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class LargeGroups:
    """Rows of groups too large for pairs, by id: those that stand for them, and all others.

    Ids are of a wide type.
    """

    standing: pa.Array
    others: pa.Array


def partner_counts(job: JoinJob, block: BlockOf, sample: Block) -> np.ndarray:
    """How many rows of a block reach the threshold with each sampled row."""
    counts = np.zeros(len(sample), np.int64)
    with tempfile.TemporaryDirectory() as folder:
        other = opened(job, block, Path(folder)).block
        for edges in joined(sample, other, job.threshold):
            counts += np.bincount(edges.a, minlength=len(sample))
    return counts


def join_blocks(job: JoinJob, a: BlockOf, b: BlockOf, starts: np.ndarray) -> int:
    """Write the edges between two blocks; how many there are."""
    board = Board(job.run)
    is_same = a.name == b.name
    writer = EdgeWriter(job.storage, edges_name(job, a, b), starts)
    with tempfile.TemporaryDirectory() as folder:
        left, right = (opened(job, side, Path(folder)) for side in (a, b))
        for edges in joined(left.block, right.block, job.threshold, is_same=is_same):
            writer.add(Edges(left.rows[edges.a], right.rows[edges.b], edges.cos))
    board.add(a.size * b.size // (2 if is_same else 1), 0)
    board.write()
    return writer.close()


def join_part(
    job: JoinJob,
    blocks: Sequence[BlockOf],
    part: OldPart,
    turn: Turn,
    starts: np.ndarray,
    large: LargeGroups | None,
) -> None:
    """Write the edges between new rows, in blocks, and old ones; and which new rows equal old."""
    board = Board(job.run)
    writer = EdgeWriter(job.storage, part.edges_name(job), starts)
    vectors = job.b.decoded(part.piece)  # its hash was checked when it was first joined
    places, weight = np.arange(len(vectors)), np.ones(len(vectors), np.int64)
    if large is not None:
        ids = job.b.table(part.piece, ["id"])["id"]
        weight[_is_in(ids, large.standing)] = LARGEST
        places = np.flatnonzero(~_is_in(ids, large.others))
        vectors = vectors[places]
    old = Block.of(vectors, turn)
    equal = [np.empty((0, 2), np.int64)]
    with tempfile.TemporaryDirectory() as folder:
        for block in blocks:
            new = opened(job, block, Path(folder))
            for edges in joined(new.block, old, job.threshold):
                writer.add(Edges(new.rows[edges.a], places[edges.b] + part.first, edges.cos))
            a, b = equal_places(new.block.vectors, vectors)
            equal.append(np.stack([new.rows[a], weight[places[b]]], axis=1))
            board.add(block.size * part.piece.size, 0)
    board.write()
    job.storage.put(part.equal_name(job), np.concatenate(equal).tobytes())
    writer.close()


def _is_in(ids: pa.ChunkedArray, some: pa.Array) -> np.ndarray:
    return pc.is_in(wide_array(ids), some).to_numpy(zero_copy_only=False)
