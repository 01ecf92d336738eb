"""Tasks of `sbert purge`: find rows by their ids in files of vectors and of indexes, rewrite files.

Every file is compared with the hash that the manifest lists before its rows are believed.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.arrays import BoolArray
from sbert_core.data_file import DataFile, ListedFile
from sbert_core.index.shard_rows import ShardRows
from sbert_core.storage import storage_at
from sbert_core.vectors.part import put_table
from sbert_core.vectors.reader import VECTOR, read_column_names, read_part
from workers.common.files import verified_file

ID_COLUMNS = ("id", "doc_id")  # the second: of rows that are windows of a document


@dataclass(frozen=True, slots=True)
class RowCount:
    """Rows of a file, and how many of them have an id that must be forgotten."""

    rows: int
    found: int


def count_rows(place: str, file: DataFile, ids: pa.Array) -> RowCount:
    """Look for ids in a part of vectors or of their quarantine."""
    storage = storage_at(place)
    names = read_column_names(storage, file.path)
    columns = [name for name in ID_COLUMNS if name in names]
    table = read_part(storage, file.path, columns, file.sha256)
    return RowCount(table.num_rows, int(_is_listed(table, ids).sum()))


def count_shard_rows(place: str, file: DataFile, ids: pa.Array) -> RowCount:
    """Look for ids in the rows of a shard, removed ones included: its graph has their vectors.

    A row without an id counts as found: an update that changed the type of ids leaves such.
    """
    listed = ListedFile(path=file.path, sha256=file.sha256, bytes=file.bytes)
    with tempfile.TemporaryDirectory() as folder:
        columns = ShardRows.read(verified_file(storage_at(place), listed, Path(folder))).columns
        is_unknown = columns["id"].is_null().to_numpy(zero_copy_only=False)
        return RowCount(columns.num_rows, int((_is_listed(columns, ids) | is_unknown).sum()))


def purge_part(place: str, file: DataFile, name: str, ids: pa.Array) -> DataFile:
    """Write a part of vectors or of their quarantine again without the rows of some ids.

    name: of the new file, before its hash.
    """
    storage = storage_at(place)
    table = read_part(storage, file.path, sha256=file.sha256)
    left = table.filter(pa.array(~_is_listed(table, ids)))
    totals = _totals(left) if VECTOR in left.column_names else {}
    known = {key: value for key, value in totals.items() if key in file.source}
    return put_table(storage, name, left).made_from(**(file.source | known))


def _totals(table: pa.Table) -> dict[str, object]:
    """Counts of a part of vectors, as its commit record has them."""
    documents = table.num_rows
    if "chunk" in table.column_names:
        documents = int((table["chunk"].to_numpy() == 0).sum())
    return {
        "documents": documents,
        "truncated": int(np.sum(table["truncated"].to_numpy(zero_copy_only=False))),
        "lost_tokens": int(table["num_lost_tokens"].to_numpy().sum()),
        "tokens": int(table["num_tokens"].to_numpy().sum()),
    }


def _is_listed(table: pa.Table, ids: pa.Array) -> BoolArray:
    """Which rows have one of the ids, compared as text."""
    found = np.zeros(table.num_rows, bool)
    for name in ID_COLUMNS:
        if name in table.column_names:
            spelled = table[name].cast(ids.type)
            found |= pc.is_in(spelled, ids).to_numpy(zero_copy_only=False)
    return found
