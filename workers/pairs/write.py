"""Tasks that end a join: edges between first rows -> files of pairs of ids.

Rows that stand for others are expanded, ids enter, and of a self-join the smaller id comes first.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sbert_core.join.duplicates import Alike, expanded, inner_pairs
from sbert_core.join.edges import part_edges
from sbert_core.large_strings import wide_array
from sbert_core.vectors.part import put_table
from sbert_core.vectors.reader import hash_in, part_file
from sbert_core.vectors.table import VectorTable
from workers.common.files import kept_file
from workers.pairs.join_job import JoinJob

WRITTEN_EDGES = 1_000_000  # at a time, after the rows that stand for others were expanded
# Given the job, the rows of pairs, which of them changed places, and the pairs: more columns.
Finish = Callable[[JoinJob, np.ndarray, np.ndarray, np.ndarray, pa.Table], pa.Table]


def write_part(
    job: JoinJob,
    number: int,
    num_parts: int,
    names: Sequence[str],
    alike_a: Alike,
    alike_b: Alike,
    finish: Finish | None = None,
) -> dict[str, Any] | None:
    """Edges of one part, expanded, as one file of pairs of ids; None if there are none."""
    edges = part_edges(job.storage, names, number, num_parts)
    a, b, cos = edges["a"], edges["b"], edges["cos"]
    alike_a, alike_b = alike_a.representing(), alike_b.representing()

    def tables() -> Iterator[pa.Table]:
        for piece in _bounded(a, b, alike_a, alike_b):
            rows = expanded(a[piece], b[piece], cos[piece], alike_a, alike_b)
            yield _pairs(job, *rows, finish)

    return written_tables(job, f"{number:06d}", tables())


def write_equal(
    job: JoinJob, number: int, alike: Alike, places: np.ndarray, finish: Finish | None = None
) -> dict[str, Any]:
    """Pairs inside groups of equal vectors."""
    a, b = inner_pairs(alike, places)
    pairs = _pairs(job, a, b, np.ones(len(a), np.float32), finish)
    made = written_tables(job, f"{number:06d}", iter([pairs]))
    assert made is not None, "groups of two and more have pairs"
    return made


def write_nothing(job: JoinJob, finish: Finish | None = None) -> dict[str, Any]:
    """A file without rows, so that readers of an artifact without pairs find its columns."""
    nobody = np.zeros(1, np.int64)
    table = _pairs(job, nobody, nobody, np.full(1, -2, np.float32), finish).slice(0, 0)
    return put_table(job.storage, f"{job.folder}/{0:06d}", table)


def write_groups(job: JoinJob, side: VectorTable, alike: Alike) -> dict[str, Any]:
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


def filter_pairs(job: JoinJob, kept: VectorTable, path: str, number: int) -> dict[str, Any] | None:
    """A file of pairs without those of rows that are gone; None if nothing is left."""
    storage = job.storage
    columns = [kept.table(piece, ["id"])["id"].combine_chunks() for piece in kept.pieces]
    ids = wide_array(pa.chunked_array(columns))

    def tables() -> Iterator[pa.Table]:
        with part_file(storage, path, hash_in(path)) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                both = (pc.is_in(wide_array(table[name]), ids) for name in ("id_a", "id_b"))
                is_kept = pc.and_(*both)
                if (left := table.filter(is_kept)).num_rows:
                    yield left.combine_chunks()

    return written_tables(job, f"{number:06d}", tables())


def _bounded(a: np.ndarray, b: np.ndarray, alike_a: Alike, alike_b: Alike) -> Iterator[slice]:
    """Edges in pieces that stand for a bounded number of pairs."""
    sizes = alike_a.stand_for(a)[1] * alike_b.stand_for(b)[1]
    group = np.cumsum(sizes) // WRITTEN_EDGES
    bounds = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(a)]
    for low, high in zip(bounds, bounds[1:], strict=False):
        if low < high:
            yield slice(low, high)


def _pairs(
    job: JoinJob, a: np.ndarray, b: np.ndarray, cos: np.ndarray, finish: Finish | None
) -> pa.Table:
    """Rows -> ids, in order of rows; the smaller id first unless the sides are two corpora."""
    if job.is_self:
        a, b = np.minimum(a, b), np.maximum(a, b)
    order = np.lexsort((b, a))
    a, b, cos = a[order], b[order], cos[order]
    id_a, id_b = job.a.ids(a), job.b.ids(b)
    swap = pa.array(np.zeros(len(a), bool))
    if job.is_ordered:
        swap = pc.greater(id_a, id_b)
        id_a, id_b = pc.if_else(swap, id_b, id_a), pc.if_else(swap, id_a, id_b)
    pairs = pa.table({"id_a": id_a, "id_b": id_b, "cos": pa.array(cos, pa.float32())})
    if finish is None:
        return pairs
    return finish(job, a, b, swap.to_numpy(zero_copy_only=False), pairs)


def written_tables(job: JoinJob, name: str, tables: Iterator[pa.Table]) -> dict[str, Any] | None:
    """A Parquet file with one row group for each table, under a name that holds its hash."""
    first = next(tables, None)
    if first is None:
        return None
    rows = 0
    with job.storage.work_folder() as folder:
        path = Path(folder) / "pairs"
        with pq.ParquetWriter(
            path,
            first.schema,
            compression="zstd",
            use_dictionary=False,
            data_page_version="1.0",
            write_page_checksum=True,
        ) as writer:
            table: pa.Table | None = first
            while table is not None:
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
                table = next(tables, None)
        file = kept_file(job.storage, f"{job.folder}/{name}", path, ".parquet")
    return {"rows": rows, **file}
