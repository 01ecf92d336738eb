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

from sbert_core.arrays import BoolArray, Int64Array
from sbert_core.join.bounded import Edges, JoinBlock, PcaRotation, cosine_join
from sbert_core.join.duplicates import MAX_EXPANDED_GROUP, find_equal_rows
from sbert_core.join.edges import EdgePart, EdgeWriter
from sbert_core.large_strings import widen_array
from sbert_core.vectors.row_ranges import RowRange
from workers.common.progress_board import ProgressBoard
from workers.pairs.join_job import BlockSpec, JoinCount, JoinGroups, JoinJob, load_block


def edges_name(job: JoinJob, a: BlockSpec, b: BlockSpec) -> str:
    """Name of the edges between two blocks."""
    return f"{job.work}/edges-{a.name}-{b.name}"


@dataclass(frozen=True, slots=True)
class KnownPart:
    """A file of rows that were joined before; they are projected in memory and never written.

    first: the number of its first row.
    """

    number: int
    piece: RowRange
    first: int

    def edges_name(self, job: JoinJob) -> str:
        """Name of the edges between new rows and this part."""
        return f"{job.work}/edges-part-{self.number:05d}"

    def equal_name(self, job: JoinJob) -> str:
        """File of the new rows that equal rows of this part."""
        return f"{job.work}/equal-part-{self.number:05d}"

    def equal_rows(self, job: JoinJob) -> Int64Array:
        """(M, 2): new rows that equal rows of this part, and how many each equals."""
        return np.frombuffer(job.storage.read(self.equal_name(job)), np.int64).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class LargeGroups:
    """Ids of the rows of groups that were too large to be expanded, of a wide type.

    representatives: the rows that stand in the pairs. others: all other members.
    """

    representatives: pa.Array
    others: pa.Array


def count_partners(job: JoinJob, block: BlockSpec, sample: JoinBlock) -> Int64Array:
    """How many rows of a block reach the threshold with each sampled row."""
    counts = np.zeros(len(sample), np.int64)
    with tempfile.TemporaryDirectory() as folder:
        other = load_block(job, block, Path(folder)).block
        for edges in cosine_join(sample, other, job.threshold):
            counts += np.bincount(edges.a, minlength=len(sample))
    return counts


def join_blocks(
    job: JoinJob, a: BlockSpec, b: BlockSpec, starts: Int64Array, groups: JoinGroups
) -> JoinCount:
    """Write the edges between two blocks, under `edges_name`.

    starts: the first row of each part of the edges. groups: collapsed, for the count alone.
    """
    board = ProgressBoard(job.run)
    is_same = a.name == b.name
    writer = EdgeWriter(job.storage, edges_name(job, a, b), starts)
    num_pairs = 0
    with tempfile.TemporaryDirectory() as folder:
        left, right = (load_block(job, side, Path(folder)) for side in (a, b))
        size_a = groups.a.member_ranges(left.rows)[1]
        size_b = groups.b.member_ranges(right.rows)[1]
        for edges in cosine_join(left.block, right.block, job.threshold, is_same=is_same):
            writer.add(Edges(left.rows[edges.a], right.rows[edges.b], edges.cos))
            num_pairs += int((size_a[edges.a] * size_b[edges.b]).sum())
    board.add(a.size * b.size // (2 if is_same else 1), 0)
    board.write()
    return JoinCount(writer.close(), num_pairs)


@dataclass(frozen=True, slots=True)
class NewRows:
    """New rows that are joined with known ones, the same for every known part.

    groups: of the new rows, for the count; each known row counts for itself. large: groups of the
    known rows.
    """

    blocks: Sequence[BlockSpec]
    rotation: PcaRotation
    starts: Int64Array
    groups: JoinGroups
    large: LargeGroups | None


def join_known_part(job: JoinJob, new: NewRows, part: KnownPart) -> JoinCount:
    """Write the edges between new rows and a known part; and which new rows equal known ones."""
    board = ProgressBoard(job.run)
    writer = EdgeWriter(job.storage, part.edges_name(job), new.starts)
    vectors = job.b.decode(part.piece)  # its hash was checked when it was first joined
    places, weight = np.arange(len(vectors)), np.ones(len(vectors), np.int64)
    if new.large is not None:
        ids = job.b.table(part.piece, ["id"])["id"]
        weight[_is_in(ids, new.large.representatives)] = MAX_EXPANDED_GROUP
        places = np.flatnonzero(~_is_in(ids, new.large.others))
        vectors = vectors[places]
    known = JoinBlock.build(vectors, new.rotation)
    equal = [np.empty((0, 2), np.int64)]
    num_pairs = 0
    with tempfile.TemporaryDirectory() as folder:
        for block in new.blocks:
            own = load_block(job, block, Path(folder))
            size = new.groups.a.member_ranges(own.rows)[1]
            for edges in cosine_join(own.block, known, job.threshold):
                writer.add(Edges(own.rows[edges.a], places[edges.b] + part.first, edges.cos))
                num_pairs += int(size[edges.a].sum())
            a, b = find_equal_rows(own.block.vectors, vectors)
            equal.append(np.stack([own.rows[a], weight[places[b]]], axis=1))
            board.add(block.size * part.piece.size, 0)
    board.write()
    job.storage.put(part.equal_name(job), np.concatenate(equal).tobytes())
    return JoinCount(writer.close(), num_pairs)


def count_part(job: JoinJob, part: EdgePart, groups: JoinGroups) -> JoinCount:
    """Count edges that tasks of an earlier attempt wrote. groups: collapsed."""
    edges = part.read(job.storage)
    return JoinCount(len(edges), groups.count_pairs(edges["a"], edges["b"]))


def _is_in(ids: pa.ChunkedArray, some: pa.Array) -> BoolArray:
    return pc.is_in(widen_array(ids), some).to_numpy(zero_copy_only=False)
