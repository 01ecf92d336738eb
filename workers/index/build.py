"""Tasks of `sbert index` that write files: the trained FAISS index, and one shard each.

Each task holds one shard and at most two parts of the vectors in memory, whatever the corpus.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa

from sbert_core.arrays import BoolArray, Float32Array
from sbert_core.data_file import ListedFile
from sbert_core.index.builder import ShardBuilder
from sbert_core.index.shard_record import ShardRecord
from sbert_core.threads import prefetch
from sbert_core.vectors.reader import VECTOR
from sbert_core.vectors.row_ranges import RowRange
from workers.common.files import verified_file
from workers.common.progress_board import ProgressBoard
from workers.index.job import IndexJob, RecallQueries
from workers.index.shard import PART_DIGITS

DEPTH = 100  # recall is measured down to this place
INSERTED_ROWS = 2048  # between two updates of the progress board


@dataclass(frozen=True, slots=True)
class TrainedIndex:
    """The empty FAISS index all shards begin with."""

    file: ListedFile
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltShard:
    """A shard that was written.

    held: by effort, the best cosines it found for held-out queries before it held them; empty if
    there are none. seconds: of building, without that search.
    """

    number: int
    record: ShardRecord
    seconds: float
    held: dict[int, Float32Array]


def train_index(job: IndexJob, sample: list[Float32Array]) -> TrainedIndex:
    """Fit cells and codes to a sample of vectors and store the index."""
    start = time.perf_counter()
    index = job.kind.train(np.concatenate(sample))
    with job.storage.work_folder() as folder:
        path = Path(folder) / "trained"
        faiss.write_index(index, str(path))
        file = job.put_file("trained", path, ".faiss")
    return TrainedIndex(file, time.perf_counter() - start)


def build_shard(
    job: IndexJob,
    number: int,
    pieces: Sequence[RowRange],
    queries: RecallQueries,
    efforts: list[int],
) -> BuiltShard:
    """Write shard `number` of these rows; search it for held-out rows before they go in."""
    start = time.perf_counter()
    with job.storage.work_folder() as temporary:
        folder = Path(temporary)
        trained = verified_file(job.storage, job.trained, folder) if job.trained else None
        size = sum(piece.size for piece in pieces)
        index = job.kind.create(job.dim, size, job.seed, trained)
        builder = ShardBuilder(index, job.dim)
        board = ProgressBoard(job.run)
        late = _insert_early(job, builder, pieces, queries, board)
        build_seconds = time.perf_counter() - start
        held = _search_held(builder, queries, efforts)
        start = time.perf_counter()
        for part in late:
            _insert(builder, part, board)
        board.write()
        files = _put_shard(job, builder, number, folder)
        build_seconds += time.perf_counter() - start
    record = ShardRecord(
        rows=size,
        live=size,
        nodes=index.num_nodes,
        parts=tuple(piece.sha256 for piece in pieces),
        files=files,
    )
    return BuiltShard(number=number, record=record, seconds=build_seconds, held=held)


@dataclass(frozen=True, slots=True)
class _PartRows:
    """Rows of one part: columns beside the vector, and vectors."""

    piece: RowRange
    rows: pa.Table
    vectors: Float32Array

    def select(self, mask: BoolArray) -> "_PartRows":
        return _PartRows(self.piece, self.rows.filter(pa.array(mask)), self.vectors[mask])


def _read_part(job: IndexJob, piece: RowRange) -> _PartRows:
    table = job.read_table(piece, sha256=piece.sha256)
    return _PartRows(piece, table.drop_columns(VECTOR), job.unit_vectors(table, piece))


def _insert_early(
    job: IndexJob,
    builder: ShardBuilder,
    pieces: Sequence[RowRange],
    queries: RecallQueries,
    board: ProgressBoard,
) -> list[_PartRows]:
    """Insert all rows but the held-out ones; return those."""
    late = []
    # The next part is read while this one is inserted: both libraries release the GIL.
    for part in prefetch(_read_part(job, piece) for piece in pieces):
        is_early = part.piece.mask_without(queries.held_rows_in(part.piece))
        _insert(builder, part.select(is_early), board)
        late.append(part.select(~is_early))
    return late


def _insert(builder: ShardBuilder, part: _PartRows, board: ProgressBoard) -> None:
    """Insert rows in steps, so that the progress board moves."""
    for first in range(0, len(part.vectors), INSERTED_ROWS):
        vectors = part.vectors[first : first + INSERTED_ROWS]
        rows = part.rows.slice(first, INSERTED_ROWS)
        builder.add(rows, vectors, part.piece.sha256[:PART_DIGITS])
        board.add(len(vectors), 0)


def _search_held(
    builder: ShardBuilder, queries: RecallQueries, efforts: list[int]
) -> dict[int, Float32Array]:
    """Best cosines for the held-out queries, by effort."""
    if not len(queries.held):
        return {}
    shard = builder.to_shard()
    return {effort: shard.search(queries.held, DEPTH, effort).cos for effort in efforts}


def _put_shard(
    job: IndexJob, builder: ShardBuilder, number: int, folder: Path
) -> tuple[ListedFile, ...]:
    """Write a shard's three files and store them."""
    paths = [folder / name for name in ("index", "rows", "own")]
    builder.write(*paths)
    suffixes = (builder.index.suffix, ".rows.arrow", ".own.npy")
    return tuple(
        job.put_file(f"shard-{number:05d}", path, suffix)
        for path, suffix in zip(paths, suffixes, strict=True)
    )
