"""Tasks that end a join: edges between first rows -> files of pairs of ids.

Edges are expanded to all members of their groups, row numbers become ids, and of a self-join the
smaller id comes first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sbert_core.arrays import BoolArray, Float32Array, Int64Array
from sbert_core.data_file import DataFile
from sbert_core.join.duplicates import DuplicateGroups, expand_pairs, pairs_within
from sbert_core.join.edges import EdgePart
from sbert_core.large_strings import widen_array
from sbert_core.vectors.part import put_table
from sbert_core.vectors.reader import hash_in_name, open_part
from sbert_core.vectors.table import VectorTable
from workers.common.files import put_hashed_file
from workers.pairs.join_job import JoinGroups, JoinJob

WRITTEN_PAIRS = 1_000_000  # at a time, after edges are expanded: 70 MB with ids of 20 bytes


@dataclass(frozen=True, slots=True)
class IdPairs:
    """Pairs about to be written.

    a, b: rows of the two sides. is_swapped: where id_a is that of row b. table: `id_a`, `id_b`,
    `cos`.
    """

    a: Int64Array
    b: Int64Array
    is_swapped: BoolArray
    table: pa.Table


PairAnnotator = Callable[[JoinJob, IdPairs], pa.Table]  # the table with more columns


@dataclass(frozen=True, slots=True)
class FilteredPairs:
    """A file of pairs without some rows. file: None if no pair is left. num_kept: those left."""

    file: DataFile | None
    num_kept: int


def write_part(
    job: JoinJob, part: EdgePart, groups: JoinGroups, annotate: PairAnnotator | None = None
) -> DataFile | None:
    """Write the edges of one part, expanded, as one file of pairs; None if there are none.

    groups: collapsed, as large groups are not expanded.
    """
    edges = part.read(job.storage)
    a, b, cos = edges["a"], edges["b"], edges["cos"]

    def tables() -> Iterator[pa.Table]:
        for some in _bounded_slices(a, b, groups):
            rows = expand_pairs(a[some], b[some], cos[some], groups.a, groups.b)
            yield _pair_table(job, *rows, annotate)

    return write_tables(job, f"{part.number:06d}", tables())


def write_equal(
    job: JoinJob,
    number: int,
    groups: JoinGroups,
    places: Int64Array,
    annotate: PairAnnotator | None = None,
) -> DataFile:
    """Write the pairs inside groups of equal vectors of a self-join.

    number: of the file. places: of groups of two rows and more.
    """
    a, b = pairs_within(groups.a, places)
    pairs = _pair_table(job, a, b, np.ones(len(a), np.float32), annotate)
    made = write_tables(job, f"{number:06d}", iter([pairs]))
    assert made is not None, "groups of two and more have pairs"
    return made


def write_empty(job: JoinJob, annotate: PairAnnotator | None = None) -> DataFile:
    """A file without rows, so that readers of an artifact without pairs find its columns."""
    any_row = np.zeros(1, np.int64)
    table = _pair_table(job, any_row, any_row, np.full(1, -2, np.float32), annotate).slice(0, 0)
    return put_table(job.storage, f"{job.folder}/{0:06d}", table)


def write_groups(job: JoinJob, side: VectorTable, groups: DuplicateGroups) -> DataFile:
    """Write groups too large to be expanded: `id`, and the `representative` that pairs hold."""
    tables = []
    for place in groups.large_groups().tolist():
        ids = side.ids(groups.members(place))
        columns = {"id": ids, "representative": pa.repeat(ids[0], len(ids))}
        if not job.is_self:
            columns["side"] = pa.repeat(pa.scalar(side.name), len(ids))
        tables.append(pa.table(columns))
    folder = job.folder.replace("data/", "groups/", 1)
    return put_table(job.storage, f"{folder}/{side.name}", pa.concat_tables(tables))


def filter_pairs(job: JoinJob, kept: VectorTable, path: str, number: int) -> FilteredPairs:
    """Copy a published file of pairs without those of rows that are gone.

    kept: rows that are still there. path: of the file; number: of the new one.
    """
    storage = job.storage
    columns = [kept.table(piece, ["id"])["id"].combine_chunks() for piece in kept.row_ranges]
    ids = widen_array(pa.chunked_array(columns))
    num_kept = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal num_kept
        with open_part(storage, path, hash_in_name(path)) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                both = (pc.is_in(widen_array(table[name]), ids) for name in ("id_a", "id_b"))
                is_kept = pc.and_(*both)
                num_kept += is_kept.true_count
                if (left := table.filter(is_kept)).num_rows:
                    yield left.combine_chunks()

    file = write_tables(job, f"{number:06d}", tables())
    return FilteredPairs(file, num_kept)


def _bounded_slices(a: Int64Array, b: Int64Array, groups: JoinGroups) -> "Iterator[slice[int]]":
    """Slices of edges that expand to a bounded number of pairs each."""
    sizes = groups.a.member_ranges(a)[1] * groups.b.member_ranges(b)[1]
    group = np.cumsum(sizes) // WRITTEN_PAIRS
    bounds = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(a)]
    for low, high in zip(bounds, bounds[1:], strict=False):
        if low < high:
            yield slice(low, high)


def _pair_table(
    job: JoinJob, a: Int64Array, b: Int64Array, cos: Float32Array, annotate: PairAnnotator | None
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
    table = pa.table({"id_a": id_a, "id_b": id_b, "cos": pa.array(cos, pa.float32())})
    if annotate is None:
        return table
    return annotate(job, IdPairs(a, b, swap.to_numpy(zero_copy_only=False), table))


def write_tables(job: JoinJob, name: str, tables: Iterator[pa.Table]) -> DataFile | None:
    """Write a Parquet file with one row group for each table, under a name that holds its hash.

    Returns None if there are no tables. Its rows are those of the footer, so that they can be
    compared with the pairs that the join tasks counted.
    """
    first = next(tables, None)
    if first is None:
        return None
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
                table = next(tables, None)
        num_rows = pq.read_metadata(path).num_rows
        file = put_hashed_file(job.storage, f"{job.folder}/{name}", path, ".parquet")
    return file.to_data_file(num_rows)
