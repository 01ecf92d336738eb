"""Task of `sbert apply`: one corpus file -> the same file without removed rows."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.formats import whole_table
from sbert_core.corpus.leaving_out import write_without
from sbert_core.corpus.rows import opened
from sbert_core.storage import Storage, storage_at


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyJob:
    """Where from and where to. id_column: None where rows are known by their numbers."""

    corpus: str
    out: str
    work: str
    id_column: str | None

    def note_name(self, file: CorpusFile) -> str:
        name = hashlib.sha256(file.path.encode()).hexdigest()[:24]
        return f"{self.work}/{name}.json"


@dataclass(frozen=True, slots=True)
class Removed:
    """Ids of all rows that go, or their numbers by file."""

    ids: pa.Array
    rows: dict[str, np.ndarray]


def apply_to_file(job: ApplyJob, file: CorpusFile, removed: Removed) -> dict[str, Any]:
    """Write the file and a note of it; the note."""
    source, out = storage_at(job.corpus), storage_at(job.out)
    if job.id_column is None:
        rows, num_rows = removed.rows.get(file.path, np.empty(0, np.int64)), _num_rows(source, file)
    else:
        ids = _ids(source, file, job.id_column)
        goes = pc.is_in(ids.cast(removed.ids.type), removed.ids)
        rows, num_rows = np.flatnonzero(goes.to_numpy(zero_copy_only=False)), len(ids)
    with out.work_folder() as folder:
        path = Path(folder) / "kept"
        kept = write_without(source, file, rows, num_rows, path)
        with path.open("rb") as made:
            sha256 = hashlib.file_digest(made, "sha256").hexdigest()
        size = path.stat().st_size
        out.put_file(file.path, path)
    note = {"path": file.path, "rows_in": num_rows, "rows": kept, "sha256": sha256, "bytes": size}
    out.put(job.note_name(file), json.dumps(note).encode())
    return note


def _ids(source: Storage, file: CorpusFile, column: str) -> pa.Array:
    if file.format is Format.PARQUET:
        with opened(source, file.path) as parquet:
            names, table = parquet.schema_arrow.names, None
            if column in names:
                table = parquet.read([column])
    else:
        table = whole_table(source, file, [column])
        names = table.column_names
    if table is None or column not in names:
        raise ValueError(
            f"{file.path} has no id column {column!r}; it has: {', '.join(names)}: apply to the "
            "corpus that was embedded"
        )
    ids = table[column].combine_chunks()
    return ids.cast(ids.type.value_type) if pa.types.is_dictionary(ids.type) else ids


def _num_rows(source: Storage, file: CorpusFile) -> int:
    if file.format is Format.PARQUET:
        with opened(source, file.path) as parquet:
            return parquet.metadata.num_rows
    return whole_table(source, file).num_rows
