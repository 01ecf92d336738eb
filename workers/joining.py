"""Tasks of `pairs`: parts of vectors -> blocks -> edges of two blocks -> pairs of ids.

Rows are numbered over a whole artifact, file by file; ids enter in the last task. Each task holds
two blocks or the edges of two blocks at a time, whatever the size of the corpus.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sbert_core.neighbours.alike import Alike, expanded, inner_pairs, vector_digests
from sbert_core.neighbours.join import Block, Turn, joined
from sbert_core.storage import Storage, storage_at
from sbert_core.vectors.parts import put_table
from sbert_core.vectors.pieces import Piece
from sbert_core.vectors.reading import VECTOR, decoded_vectors, part_table
from workers.board import Board
from workers.files import kept_file, local_file

EDGES = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("cos", pa.float32())])
WRITTEN_EDGES = 1_000_000  # at a time, after the rows that stand for others were expanded
ARRAYS = ("short", "vectors", "rows")


@dataclass(frozen=True, slots=True)
class Side:
    """A vectors artifact that takes part in a join."""

    name: str
    vectors: str
    scale: float | None
    pieces: tuple[Piece, ...]

    def decoded(self, piece: Piece) -> np.ndarray:
        table = part_table(storage_at(self.vectors), piece.path, ["id", VECTOR])
        if piece.rows is not None:
            table = table.take(pa.array(piece.rows))
        return decoded_vectors(table, self.scale, f"{self.vectors}/{piece.path}")

    def ids(self, rows: np.ndarray) -> pa.Array:
        """Ids of rows by number, one file at a time."""
        wanted, back = np.unique(rows, return_inverse=True)
        found, start = [], 0
        for piece in self.pieces:
            own = wanted[(wanted >= start) & (wanted < start + piece.num_rows)] - start
            if len(own):
                table = part_table(storage_at(self.vectors), piece.path, ["id"])
                found.append(table["id"].combine_chunks().take(pa.array(own)))
            start += piece.num_rows
        return pa.concat_arrays(found).take(pa.array(back))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinJob:
    """What is the same for all tasks. b is a where rows are joined with each other."""

    run: str
    out: str
    work: str
    folder: str
    threshold: float
    a: Side
    b: Side

    @property
    def storage(self) -> Storage:
        return storage_at(self.out)

    @property
    def is_self(self) -> bool:
        return self.a.name == self.b.name


@dataclass(frozen=True, slots=True)
class BlockOf:
    """First rows of some groups of one side. rows: of each piece, counted over the artifact."""

    side: str
    number: int
    pieces: tuple[tuple[Piece, int], ...]  # with the number of the file's first row

    @property
    def name(self) -> str:
        return f"block-{self.side}-{self.number:05d}"

    @property
    def size(self) -> int:
        return sum(piece.size for piece, _ in self.pieces)


def part_digests(side: Side, piece: Piece) -> np.ndarray:
    """What tells equal vectors."""
    return vector_digests(side.decoded(piece))


def sampled_rows(side: Side, piece: Piece) -> tuple[list[Any], np.ndarray]:
    """Ids and vectors of some rows."""
    table = part_table(storage_at(side.vectors), piece.path, ["id"])
    return table["id"].take(pa.array(piece.rows)).to_pylist(), side.decoded(piece)


def write_block(job: JoinJob, block: BlockOf, turn: Turn) -> None:
    """Turned vectors as files that can be mapped."""
    side = job.a if block.side == job.a.name else job.b
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


def edges_name(job: JoinJob, a: BlockOf, b: BlockOf) -> str:
    return f"{job.work}/edges-{a.number:05d}-{b.number:05d}.arrow"


def join_blocks(job: JoinJob, a: BlockOf, b: BlockOf) -> int:
    """Write the edges between two blocks; how many there are."""
    board = Board(job.run)
    num_edges = 0
    with job.storage.work_folder() as temporary:
        folder = Path(temporary)
        (block_a, rows_a), (block_b, rows_b) = (_opened(job, side, folder) for side in (a, b))
        path = folder / "edges"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, EDGES) as writer:
            is_same = a.name == b.name
            for edges in joined(block_a, block_b, job.threshold, is_same=is_same):
                columns = [rows_a[edges.a], rows_b[edges.b], edges.cos]
                writer.write_batch(pa.record_batch([pa.array(c) for c in columns], schema=EDGES))
                num_edges += len(edges)
        job.storage.put_file(edges_name(job, a, b), path)
    board.add(a.size * b.size // (2 if is_same else 1), 0)
    board.write()
    return num_edges


def _opened(job: JoinJob, block: BlockOf, folder: Path) -> tuple[Block, np.ndarray]:
    paths = [local_file(job.storage, array_name(job, block, name), folder) for name in ARRAYS]
    short, vectors, rows = (np.load(path, mmap_mode="c") for path in paths)
    return Block(short, vectors), rows


def write_part(
    job: JoinJob, number: int, names: Sequence[str], alike_a: Alike, alike_b: Alike
) -> dict[str, Any] | None:
    """Edges of some block pairs, expanded, as one file of pairs of ids; None if there are none."""

    def tables() -> Iterator[pa.Table]:
        for name in names:
            edges = pa.ipc.open_file(pa.BufferReader(job.storage.buffer(name))).read_all()
            a, b, cos = (edges[column].to_numpy() for column in EDGES.names)
            for piece in _bounded(a, b, alike_a, alike_b):
                yield _pairs(job, *expanded(a[piece], b[piece], cos[piece], alike_a, alike_b))

    return _written(job, f"{number:06d}", tables())


def write_equal(job: JoinJob, number: int, alike: Alike, places: np.ndarray) -> dict[str, Any]:
    """Pairs inside groups of equal vectors."""
    a, b = inner_pairs(alike, places)
    made = _written(job, f"{number:06d}", iter([_pairs(job, a, b, np.ones(len(a), np.float32))]))
    assert made is not None, "groups of two and more have pairs"
    return made


def write_nothing(job: JoinJob) -> dict[str, Any]:
    """A file without rows, so that readers of an artifact without pairs find its columns."""
    nobody = np.zeros(1, np.int64)
    table = _pairs(job, nobody, nobody, np.ones(1, np.float32)).slice(0, 0)
    return put_table(job.storage, f"{job.folder}/{0:06d}", table)


def write_groups(job: JoinJob, side: Side, alike: Alike) -> dict[str, Any]:
    """Groups too large for pairs: id and the id that stands for it in pairs."""
    tables = []
    for place in alike.large().tolist():
        ids = side.ids(alike.members(place))
        columns = {"id": ids, "representative": pa.repeat(ids[0], len(ids))}
        if not job.is_self:
            columns["side"] = pa.repeat(pa.scalar(side.name), len(ids))
        tables.append(pa.table(columns))
    folder = job.folder.replace("data/", "groups/", 1)
    return put_table(job.storage, f"{folder}/{side.name}", pa.concat_tables(tables))


def _bounded(a: np.ndarray, b: np.ndarray, alike_a: Alike, alike_b: Alike) -> Iterator[slice]:
    """Edges in pieces that stand for a bounded number of pairs."""
    sizes = alike_a.stand_for(a)[1] * alike_b.stand_for(b)[1]
    group = np.cumsum(sizes) // WRITTEN_EDGES
    bounds = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(a)]
    for low, high in zip(bounds, bounds[1:], strict=False):
        if low < high:
            yield slice(low, high)


def _pairs(job: JoinJob, a: np.ndarray, b: np.ndarray, cos: np.ndarray) -> pa.Table:
    """Rows -> ids, in order of rows; of a self-join the smaller id first."""
    order = np.lexsort((np.maximum(a, b), np.minimum(a, b))) if job.is_self else np.lexsort((b, a))
    a, b, cos = a[order], b[order], cos[order]
    if job.is_self:
        a, b = np.minimum(a, b), np.maximum(a, b)
    id_a, id_b = job.a.ids(a), job.b.ids(b)
    if job.is_self:
        swap = pc.greater(id_a, id_b)
        id_a, id_b = pc.if_else(swap, id_b, id_a), pc.if_else(swap, id_a, id_b)
    return pa.table({"id_a": id_a, "id_b": id_b, "cos": pa.array(cos, pa.float32())})


def _written(job: JoinJob, name: str, tables: Iterator[pa.Table]) -> dict[str, Any] | None:
    """A Parquet file with one row group for each table, under a name that holds its hash."""
    first = next(tables, None)
    if first is None:
        return None
    rows = 0
    with job.storage.work_folder() as folder:
        path = Path(folder) / "pairs"
        with pq.ParquetWriter(
            path, first.schema, compression="zstd", use_dictionary=False, data_page_version="1.0"
        ) as writer:
            table: pa.Table | None = first
            while table is not None:
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
                table = next(tables, None)
        file = kept_file(job.storage, f"{job.folder}/{name}", path, ".parquet")
    return {"rows": rows, **file}
