"""Task of `sbert apply`: one corpus file -> the same file without removed rows."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbert_core.arrays import Int64Array
from sbert_core.corpus.drop_rows import write_without_rows
from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.formats import read_table
from sbert_core.corpus.parquet import open_parquet
from sbert_core.corpus.records import count_rows
from sbert_core.data_file import DataFile
from sbert_core.json_record import decode, encode
from sbert_core.storage import Storage, storage_at

HASHED_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyJob:
    """Settings shared by all tasks. id_column: None where rows are known by their numbers.

    data, work: folders below `out` for the files and for a note of each finished one.
    """

    corpus: str
    out: str
    data: str
    work: str
    id_column: str | None

    def note_name(self, file: CorpusFile) -> str:
        """Name of the note of a file, which a rerun looks for."""
        name = hashlib.sha256(file.path.encode()).hexdigest()[:24]
        return f"{self.work}/{name}.json"


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """Rows to remove: ids of all files, or numbers by file."""

    ids: pa.Array
    rows: dict[str, Int64Array]


def apply_to_file(
    job: ApplyJob, file: CorpusFile, removed: RemovedRows, previous: DataFile | None
) -> DataFile:
    """Write the file without its removed rows, or link the last generation's if it is the same.

    previous: what the published manifest lists for this file. Leaves a note that a rerun takes up.
    """
    source, out = storage_at(job.corpus), storage_at(job.out)
    if job.id_column is None:
        rows, num_rows = np.unique(removed.rows.get(file.path, np.empty(0, np.int64))), None
    else:
        ids = _read_ids(source, file, job.id_column)
        is_removed = pc.is_in(ids.cast(removed.ids.type), removed.ids)
        rows, num_rows = np.flatnonzero(is_removed.to_numpy(zero_copy_only=False)), len(ids)
    made_from: dict[str, object] = {
        **asdict(file),
        "removed": len(rows),
        "removed_sha256": hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest(),
    }
    name = f"{job.data}/{file.path}"
    if previous is not None and _is_same(out, previous, made_from):
        out.link(previous.path, name)
        made = replace(previous, path=name)
    else:
        num_rows = _count_rows(source, file) if num_rows is None else num_rows
        made = _write_kept(source, out, file, rows, num_rows, name)
        made = replace(made, source={**made_from, "rows": num_rows})
    out.put(job.note_name(file), json.dumps(encode(made)).encode())
    return made


def read_note(job: ApplyJob, file: CorpusFile) -> DataFile | None:
    """What an earlier run made of the file, if that is still there."""
    out = storage_at(job.out)
    name = job.note_name(file)
    if out.stat(name) is None:
        return None
    note = decode(DataFile, json.loads(out.read(name)), name)
    found = out.stat(note.path)
    return note if found is not None and found.size == note.bytes else None


def _is_same(out: Storage, previous: DataFile, made_from: dict[str, object]) -> bool:
    """Was it made of the same file and rows, and is it still whole?"""
    source, found = previous.source, out.stat(previous.path)
    if not made_from.items() <= source.items() or found is None or found.size != previous.bytes:
        return False
    if previous.rows + previous.source_count("removed") != previous.source_count("rows"):
        return False
    sha256 = hashlib.sha256()
    with out.open(previous.path) as file:
        while data := file.read(HASHED_BYTES):
            sha256.update(data)
    return sha256.hexdigest() == previous.sha256


def _write_kept(
    source: Storage, out: Storage, file: CorpusFile, rows: Int64Array, num_rows: int, name: str
) -> DataFile:
    with out.work_folder() as folder:
        path = Path(folder) / "kept"
        num_kept = write_without_rows(source, file, rows, num_rows, path)
        with path.open("rb") as made:
            sha256 = hashlib.file_digest(made, "sha256").hexdigest()
        size = path.stat().st_size
        out.put_file(name, path)
    return DataFile(path=name, rows=num_kept, sha256=sha256, bytes=size)


def _read_ids(source: Storage, file: CorpusFile, column: str) -> pa.Array:
    ids = read_table(source, file, [column])[column].combine_chunks()
    return ids.cast(ids.type.value_type) if pa.types.is_dictionary(ids.type) else ids


def _count_rows(source: Storage, file: CorpusFile) -> int:
    if file.format is Format.PARQUET:
        with open_parquet(source, file.path) as parquet:
            return parquet.metadata.num_rows
    return count_rows(source, file)
