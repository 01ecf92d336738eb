"""Sides, blocks and groups of a join, made in a folder without Ray; brute force to compare with."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.join.bounded import PcaRotation, paired_cosines
from sbert_core.join.duplicates import DuplicateGroups
from sbert_core.storage import storage_at
from sbert_core.vectors.part import put_table
from sbert_core.vectors.row_ranges import RowRange
from sbert_core.vectors.table import VectorTable
from workers.pairs.join_job import BlockSpec, JoinGroups, JoinJob, digest_part, write_block


def near_rows(number, dim, seed=0):
    """Groups of near rows, some of them equal."""
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((max(1, number // 5), dim))
    rows = base[rng.integers(0, len(base), number)] + 0.15 * rng.standard_normal((number, dim))
    rows[: number // 4] = rows[rng.integers(number // 2, number, number // 4)]
    return rng.permutation(rows).astype(np.float32)


def vector_table(folder, files, name="a", first_id=0):
    """A side of a join, a file for each array; ids fall while rows rise."""
    storage = storage_at(folder)
    total = sum(len(vectors) for vectors in files)
    pieces, start = [], 0
    for number, vectors in enumerate(files):
        ids = first_id + total - 1 - np.arange(start, start + len(vectors))
        column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1])
        file = put_table(storage, f"{name}/{number:06d}", pa.table({"id": ids, "vector": column}))
        pieces.append(RowRange(file.path, file.sha256, file.rows))
        start += len(vectors)
    return VectorTable(name, storage.uri, None, tuple(pieces))


@dataclass(frozen=True)
class PreparedJoin:
    """A join whose blocks are written: one for each file of a side."""

    job: JoinJob
    groups: JoinGroups
    blocks_a: list
    blocks_b: list
    starts: np.ndarray
    rotation: PcaRotation

    @property
    def written_groups(self):
        return self.groups.collapse_large()

    def against(self, side):
        """As an update joins new rows with known ones."""
        single = DuplicateGroups.singletons(side.num_rows)
        return replace(
            self,
            job=replace(self.job, b=side),
            groups=JoinGroups(self.groups.a, single),
            blocks_b=[],
        )


def prepare_join(folder, a, b=None, threshold=0.9):
    """Groups and written blocks of a self-join, or of two sides."""
    sides = [a] if b is None else [a, b]
    job = JoinJob(
        run="run",
        out=str(folder / "out"),
        work="_work",
        folder="data/0123456789abcdef",
        threshold=threshold,
        a=a,
        b=sides[-1],
        is_ordered=b is None,
    )
    (folder / "out").mkdir(exist_ok=True)
    groups = [
        DuplicateGroups.from_digests(np.concatenate([digest_part(s, p) for p in s.row_ranges]))
        for s in sides
    ]
    sample = np.concatenate([s.decode(piece) for s in sides for piece in s.row_ranges])
    rotation = PcaRotation.fit(sample, threshold)
    blocks = [blocks_by_file(side, own) for side, own in zip(sides, groups, strict=True)]
    for block in (block for own in blocks for block in own):
        write_block(job, block, rotation)
    starts = np.array([block.first_row for block in blocks[0]])
    starts[0] = 0
    return PreparedJoin(
        job, JoinGroups(groups[0], groups[-1]), blocks[0], blocks[-1], starts, rotation
    )


def blocks_by_file(side, groups):
    """A block of the first rows of each file."""
    blocks, start = [], 0
    for piece in side.row_ranges:
        low, high = np.searchsorted(groups.first, [start, start + piece.num_rows])
        if low < high:
            own = piece.take(groups.first[low:high] - start)
            blocks.append(BlockSpec(side.name, len(blocks), ((own, start),)))
        start += piece.num_rows
    return blocks


def all_cosines(a, b):
    """Cosine of every row of a with every row of b."""
    rows_a, rows_b = np.divmod(np.arange(len(a) * len(b)), len(b))
    return paired_cosines(a[rows_a], b[rows_b]).reshape(len(a), len(b))


def read_pairs(job, files):
    """(id_a, id_b) -> cosine, of written files; each pair once."""
    pairs = {}
    for file in files:
        table = pq.read_table(job.storage.path(file.path))
        assert table.num_rows == file.rows
        for row in table.to_pylist():
            key = (row["id_a"], row["id_b"])
            assert key not in pairs
            pairs[key] = row["cos"]
    return pairs
