"""Tasks of `sbert index` that carry rows of an existing shard over to changed vectors."""

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.arrays import BytesArray, Int64Array
from sbert_core.data_file import ListedFile
from sbert_core.index.shard_rows import ShardRows
from sbert_core.vectors.reader import read_column_names, read_part
from sbert_core.vectors.row_ranges import RowRange
from workers.common.files import verified_file
from workers.index.job import IndexJob
from workers.index.shard import PART_DIGITS

KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class MovedRows:
    """Rows of a shard that stand in another file of the vectors artifact now.

    positions: in the shard. piece: the new file. rows: in that file, in the same order.
    """

    positions: Int64Array
    piece: RowRange
    rows: Int64Array


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """Digests of some rows of a shard, and their positions in it."""

    positions: Int64Array
    keys: BytesArray


@dataclass(frozen=True, slots=True)
class UpdatedRows:
    """The new file of a shard's rows, and how many of them are live."""

    file: ListedFile
    live: int


def hash_part_rows(job: IndexJob, piece: RowRange) -> BytesArray:
    """A digest of id and text of each row of a part."""
    return _hash_rows(job.read_table(piece, ["id", "content_hash"]))


def hash_shard_rows(job: IndexJob, files: Sequence[ListedFile], parts: frozenset[str]) -> ShardKeys:
    """Digests of the live rows of a shard that come from some parts, given by sha256."""
    with tempfile.TemporaryDirectory() as folder:
        rows = ShardRows.read(verified_file(job.storage, files[1], Path(folder)))
        positions = _live_positions(rows, parts)
        chosen = rows.columns.select(["id", "content_hash"]).take(pa.array(positions))
        return ShardKeys(positions, _hash_rows(chosen))


def update_shard_rows(
    job: IndexJob,
    number: int,
    files: Sequence[ListedFile],
    gone: frozenset[str],
    moved: Sequence[MovedRows],
) -> UpdatedRows:
    """Write the rows of a shard anew: rows of parts that are gone die, moved ones live on.

    number: of the shard. gone: sha256 of parts. Columns of moved rows are read from their new file.
    """
    with job.storage.work_folder() as temporary:
        folder = Path(temporary)
        rows = ShardRows.read(verified_file(job.storage, files[1], folder))
        is_dead = rows.is_dead.copy()
        is_dead[_live_positions(rows, gone)] = True
        order = np.arange(rows.columns.num_rows)
        tables, parts = [rows.columns], [*rows.part.chunks]
        for own in moved:
            is_dead[own.positions] = False
            first = sum(table.num_rows for table in tables)
            order[own.positions] = first + np.arange(len(own.positions))
            columns = read_column_names(job.source, own.piece.path)
            fresh = read_part(job.source, own.piece.path, columns)
            tables.append(fresh.take(pa.array(own.rows)))
            parts.append(pa.repeat(own.piece.sha256[:PART_DIGITS], len(own.positions)))
        schema = tables[-1].schema
        updated = ShardRows(
            rows.node,
            rows.exact,
            is_dead,
            pa.chunked_array(parts).take(pa.array(order)),
            pa.concat_tables([_conform(t, schema) for t in tables]).take(pa.array(order)),
        )
        path = folder / "rows"
        updated.write(path)
        file = job.put_file(f"shard-{number:05d}", path, ".rows.arrow")
    return UpdatedRows(file, int((~is_dead).sum()))


def _live_positions(rows: ShardRows, parts: frozenset[str]) -> Int64Array:
    """Positions of the live rows that come from some parts."""
    names = pa.array([sha[:PART_DIGITS] for sha in parts], pa.string())
    is_listed = pc.is_in(rows.part, names).to_numpy(zero_copy_only=False)
    return np.flatnonzero(is_listed & ~rows.is_dead)


def _hash_rows(table: pa.Table) -> BytesArray:
    ids, hashes = table["id"].to_pylist(), table["content_hash"].to_pylist()
    joined = b"".join(
        hashlib.blake2b(repr(i).encode() + b"\0" + h, digest_size=KEY_BYTES).digest()
        for i, h in zip(ids, hashes, strict=True)
    )
    return np.frombuffer(joined, f"S{KEY_BYTES}")


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of the schema; null where they lack one: such rows are dead."""
    columns = [
        rows[f.name]
        if f.name in rows.column_names and rows.schema.field(f.name).type == f.type
        else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)
