"""Tasks of `index`: parts of a vectors artifact -> shards, and what they miss.

Each task holds one shard or one part at a time, whatever the size of the corpus.
"""

import hashlib
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.index.builder import ShardBuilder
from sbert_core.index.hits import Hits, best_of, exact_hits, nothing
from sbert_core.index.kinds import IndexKind
from sbert_core.index.shard import Shard, ShardRows
from sbert_core.storage import Storage, storage_at
from sbert_core.threads import ahead
from sbert_core.vectors.reader import VECTOR, columns_of, part_table, piece_table, unit_vectors
from sbert_core.vectors.row_ranges import Piece
from workers.common.files import checked_file, kept_file
from workers.common.progress_board import Board

PART_DIGITS = 16  # of a file's sha256, by which rows of a shard know where they come from
DEPTH = 100  # recall is measured down to this place
SINGLE_QUERIES = 200
INSERTED_ROWS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexJob:
    """What is the same for all shards.

    folder: where the generation's files go. trained: file of the empty FAISS index all shards
    begin with.
    """

    run: str
    vectors: str
    out: str
    folder: str
    kind: IndexKind
    dim: int
    scale: float | None
    seed: int
    trained: dict[str, Any] | None

    @property
    def storage(self) -> Storage:
        return storage_at(self.out)

    def table(self, piece: Piece, columns: list[str] | None = None, sha256: str = "") -> pa.Table:
        return piece_table(storage_at(self.vectors), piece, columns, sha256)

    def units(self, table: pa.Table, piece: Piece) -> np.ndarray:
        return unit_vectors(table, self.scale, f"{self.vectors}/{piece.path}")

    def named(self, name: str, source: Path, suffix: str) -> dict[str, Any]:
        """A file of the index, under a name that holds its hash."""
        return kept_file(self.storage, f"{self.folder}/{name}", source, suffix)


@dataclass(frozen=True, slots=True)
class Queries:
    """Samples recall is measured with.

    inside: vectors of rows of the corpus. held: vectors of rows that are inserted only after the
    search for them; `held_rows` says which they are, by sha256 of their part.
    """

    inside: np.ndarray
    held: np.ndarray
    held_rows: dict[str, np.ndarray]

    def held_of(self, piece: Piece) -> np.ndarray:
        return self.held_rows.get(piece.sha256, np.empty(0, np.int64))


def sampled_vectors(job: IndexJob, piece: Piece) -> np.ndarray:
    """Unit vectors of the piece's rows."""
    return job.units(job.table(piece, ["id", VECTOR]), piece)


def train_index(job: IndexJob, sample: list[np.ndarray]) -> dict[str, Any]:
    """The empty FAISS index with cells and codes that all shards share."""
    start = time.perf_counter()
    index = job.kind.trained(np.concatenate(sample))
    with job.storage.work_folder() as folder:
        path = Path(folder) / "trained"
        faiss.write_index(index, str(path))
        file = job.named("trained", path, ".faiss")
    return {"file": file, "seconds": time.perf_counter() - start}


def build_shard(
    job: IndexJob, number: int, pieces: Sequence[Piece], queries: Queries, efforts: list[int]
) -> dict[str, Any]:
    """Write one shard; its files, and the cosines it found for queries it did not hold yet."""
    start = time.perf_counter()
    with job.storage.work_folder() as temporary:
        folder = Path(temporary)
        trained = checked_file(job.storage, job.trained, folder) if job.trained else None
        size = sum(piece.size for piece in pieces)
        index = job.kind.empty(job.dim, size, job.seed, trained)
        builder = ShardBuilder(index, job.dim)
        board = Board(job.run)
        late: list[tuple[Piece, pa.Table, np.ndarray]] = []
        # The next part is read while this one is inserted: both libraries let other threads run.
        for piece, rows, vectors in ahead((piece, *_rows(job, piece)) for piece in pieces):
            is_early = piece.without(queries.held_of(piece))
            _insert(builder, piece, rows.filter(pa.array(is_early)), vectors[is_early], board)
            late.append((piece, rows.filter(pa.array(~is_early)), vectors[~is_early]))
        build_seconds = time.perf_counter() - start
        held = {}
        if len(queries.held):
            shard = builder.shard()
            held = {e: shard.search(queries.held, DEPTH, e).cos for e in efforts}
            del shard
        start = time.perf_counter()
        for piece, rows, vectors in late:
            _insert(builder, piece, rows, vectors, board)
        board.write()
        paths = [folder / name for name in ("index", "rows", "own")]
        builder.write(*paths)
        name = f"shard-{number:05d}"
        suffixes = (index.suffix, ".rows.arrow", ".own.npy")
        files = [job.named(name, p, suffix) for p, suffix in zip(paths, suffixes, strict=True)]
        build_seconds += time.perf_counter() - start
    return {
        "number": number,
        "rows": size,
        "live": size,
        "nodes": index.num_nodes,
        "parts": [piece.sha256 for piece in pieces],
        "files": files,
        "held": held,
        "seconds": build_seconds,
    }


def _insert(
    builder: ShardBuilder, piece: Piece, rows: pa.Table, vectors: np.ndarray, board: Board
) -> None:
    """Some rows at a time, so that progress can be seen."""
    for first in range(0, len(vectors), INSERTED_ROWS):
        some = slice(first, first + INSERTED_ROWS)
        builder.add(rows.slice(first, INSERTED_ROWS), vectors[some], piece.sha256[:PART_DIGITS])
        board.add(len(vectors[some]), 0)


def _rows(job: IndexJob, piece: Piece) -> tuple[pa.Table, np.ndarray]:
    """The columns beside the vector, and the vectors."""
    table = job.table(piece, sha256=piece.sha256)
    vectors = job.units(table, piece)
    return table.drop_columns(VECTOR), vectors


def exact_cosines(
    job: IndexJob, pieces: Sequence[Piece], queries: Queries
) -> tuple[np.ndarray, np.ndarray]:
    """The best cosines of all rows for queries inside, and of rows that are not held out."""
    inside, held = nothing(len(queries.inside), DEPTH), nothing(len(queries.held), DEPTH)
    for piece in pieces:
        vectors = job.units(job.table(piece, ["id", VECTOR]), piece)
        inside = best_of([inside, exact_hits(queries.inside, vectors, DEPTH)], DEPTH)
        early = vectors[piece.without(queries.held_of(piece))]
        held = best_of([held, exact_hits(queries.held, early, DEPTH)], DEPTH)
    return inside.cos, held.cos


def measure_shard(
    job: IndexJob, shard: dict[str, Any], queries: Queries, efforts: list[int], seconds: float
) -> dict[str, Any]:
    """What a shard finds at each effort, and how fast at the first."""
    with tempfile.TemporaryDirectory() as folder:
        opened = open_shard(job.storage, job.kind, job.dim, shard["files"], Path(folder))
        inside = {e: opened.search(queries.inside, DEPTH, e).cos for e in efforts}
        held = shard["held"] or {e: opened.search(queries.held, DEPTH, e).cos for e in efforts}
        speed = _speed(opened, queries.inside, efforts, seconds)
    return {"inside": inside, "held": held, "speed": speed}


def _speed(
    shard: Shard, queries: np.ndarray, efforts: list[int], seconds: float
) -> dict[int, dict[str, Any]]:
    """Seconds for a batch of queries, and of single ones, for ten hits on one thread."""
    found = {}
    for effort in efforts:
        start = time.perf_counter()
        shard.search(queries, 10, effort)
        batch = (time.perf_counter() - start) / max(1, len(queries))
        single = []
        deadline = time.perf_counter() + seconds
        for query in queries[:SINGLE_QUERIES]:
            start = time.perf_counter()
            shard.search(query[None], 10, effort)
            single.append(time.perf_counter() - start)
            if start > deadline:
                break
        found[effort] = {"batch": batch, "single": single}
    return found


def open_shard(
    storage: Storage, kind: IndexKind, dim: int, files: Sequence[dict[str, Any]], folder: Path
) -> Shard:
    """A shard from its three files, fetched if they are not on this machine, and checked."""
    index, rows, own = (checked_file(storage, file, folder) for file in files)
    return Shard.read(kind.read(index, dim), rows, own)


def part_keys(job: IndexJob, piece: Piece) -> np.ndarray:
    """A digest of id and text of each row of a part."""
    return _keys(job.table(piece, ["id", "content_hash"]))


def shard_keys(
    job: IndexJob, files: Sequence[dict[str, Any]], gone: frozenset[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and digests of the living rows of a shard whose parts are gone."""
    with tempfile.TemporaryDirectory() as folder:
        rows = ShardRows.read(checked_file(job.storage, files[1], Path(folder)))
        places = _places(rows, gone)
        chosen = rows.columns.select(["id", "content_hash"]).take(pa.array(places))
        return places, _keys(chosen)


def _places(rows: ShardRows, parts: frozenset[str]) -> np.ndarray:
    """Living rows of some parts."""
    names = pa.array([sha[:PART_DIGITS] for sha in parts], pa.string())
    hit = pc.is_in(rows.part, names).to_numpy(zero_copy_only=False)
    return np.flatnonzero(hit & ~rows.is_dead)


def _keys(table: pa.Table) -> np.ndarray:
    ids, hashes = table["id"].to_pylist(), table["content_hash"].to_pylist()
    joined = b"".join(
        hashlib.blake2b(repr(i).encode() + b"\0" + h, digest_size=16).digest()
        for i, h in zip(ids, hashes, strict=True)
    )
    return np.frombuffer(joined, "S16")


def retouch_shard(
    job: IndexJob,
    number: int,
    files: Sequence[dict[str, Any]],
    gone: frozenset[str],
    moved: Sequence[tuple[np.ndarray, Piece, np.ndarray]],
) -> tuple[dict[str, Any], int]:
    """The rows of a shard after an update: their file, and how many of them live."""
    with job.storage.work_folder() as temporary:
        folder = Path(temporary)
        rows = ShardRows.read(checked_file(job.storage, files[1], folder))
        is_dead = rows.is_dead.copy()
        is_dead[_places(rows, gone)] = True
        order = np.arange(rows.columns.num_rows)
        tables, parts = [rows.columns], [*rows.part.chunks]
        for positions, piece, part_rows in moved:
            is_dead[positions] = False
            order[positions] = sum(table.num_rows for table in tables) + np.arange(len(positions))
            fresh = part_table(storage_at(job.vectors), piece.path, columns_in(job, piece))
            tables.append(fresh.take(pa.array(part_rows)))
            parts.append(pa.repeat(piece.sha256[:PART_DIGITS], len(positions)))
        schema = tables[-1].schema
        left = ShardRows(
            rows.node,
            rows.own,
            is_dead,
            pa.chunked_array(parts).take(pa.array(order)),
            pa.concat_tables([_shaped(t, schema) for t in tables]).take(pa.array(order)),
        )
        path = folder / "rows"
        left.write(path)
        return job.named(f"shard-{number:05d}", path, ".rows.arrow"), int((~is_dead).sum())


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of today; null where other ones were carried: those rows are dead."""
    known = {f.name for f in schema if f.name in rows.column_names}
    columns = [
        rows[f.name]
        if f.name in known and rows.schema.field(f.name).type == f.type
        else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def merged_cosines(parts: Iterable[np.ndarray]) -> Hits:
    """The best cosines of several parts; rows do not matter to recall."""
    cos = np.hstack(list(parts))
    best = -np.sort(-cos, axis=1)[:, :DEPTH]
    return Hits(best, np.where(np.isfinite(best), 0, -1))


def columns_in(job: IndexJob, piece: Piece) -> list[str]:
    return columns_of(storage_at(job.vectors), piece.path)
