"""Copy a corpus file without some of its rows.

In:  a file of any format, and the numbers of the rows to drop.
Out: the other rows in their order: Parquet with its schema and row groups, lines of CSV and JSON
     byte for byte.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.parquet import open_parquet
from sbert_core.corpus.records import (
    RecordScanner,
    json_line_blocks,
    open_stream,
    scan_blocks,
)
from sbert_core.storage import Storage


def write_without_rows(
    storage: Storage, file: CorpusFile, rows: np.ndarray, num_rows: int, target: Path
) -> int:
    """Write a file's rows except `rows` to `target`; the number of rows counted in that file.

    num_rows: of the whole file. CorruptFile where its records cannot be told apart.
    """
    stays = np.ones(num_rows, bool)
    stays[rows] = False
    if file.format is Format.PARQUET:
        _write_groups(storage, file, stays, target)
        return int(pq.read_metadata(target).num_rows)
    _write_records(storage, file, stays, target)
    return _num_records(file, target)


def _write_groups(storage: Storage, file: CorpusFile, stays: np.ndarray, target: Path) -> None:
    with open_parquet(storage, file.path) as source:
        schema, groups = source.schema_arrow, source.metadata.num_row_groups
        codec = _codec(source.metadata)
        with pq.ParquetWriter(target, schema, compression=codec) as writer:
            first = 0
            for group in range(groups):
                table = source.read_row_group(group)
                own = stays[first : first + table.num_rows]
                first += table.num_rows
                if own.any():
                    left = table if own.all() else table.filter(pa.array(own))
                    writer.write_table(left, row_group_size=max(1, left.num_rows))


def _codec(metadata: pq.FileMetaData) -> str:
    if not metadata.num_row_groups or not metadata.num_columns:
        return "zstd"
    name = metadata.row_group(0).column(0).compression.lower()
    return "none" if name == "uncompressed" else name


def _write_records(storage: Storage, file: CorpusFile, stays: np.ndarray, target: Path) -> None:
    write = _write_lines if file.format is Format.JSONL else _write_delimited
    with (
        open_stream(storage, file) as source,
        pa.output_stream(target, compression=file.compression) as sink,
    ):
        number = write(source, file.format, stays, sink)
    if number != len(stays):
        raise CorruptFile(
            storage.uri,
            file.path,
            f"{number:,} records by its quotes and {len(stays):,} rows to its reader",
        )


def _write_lines(
    source: pa.NativeFile, kind: Format, stays: np.ndarray, sink: pa.NativeFile
) -> int:
    number = 0
    for lines in json_line_blocks(source):
        own = stays[number : number + len(lines)].tolist()
        sink.write(b"".join(line for (_, line), stay in zip(lines, own, strict=False) if stay))
        number += len(lines)
    return number


def _write_delimited(
    source: pa.NativeFile, kind: Format, stays: np.ndarray, sink: pa.NativeFile
) -> int:
    """Copy the header and the bytes of each record that stays; empty lines are dropped."""
    scanner = RecordScanner(kind)
    # The header, the rows, and anything beyond the expected rows: the caller raises for that.
    keep = np.concatenate([[True], stays, [False]])
    number = 0
    for data, ends, is_record in scan_blocks(source, scanner):
        begun = number + np.concatenate([[0], np.cumsum(is_record)])  # before each piece
        is_kept = keep[np.minimum(begun, len(keep) - 1)] & np.append(is_record, True)
        bounds = np.concatenate([[0], ends, [len(data)]])
        changes = np.flatnonzero(np.diff(is_kept, prepend=False, append=False))
        for first, last in changes.reshape(-1, 2).tolist():
            sink.write(data[bounds[first] : bounds[last]])
        number = int(begun[-1])
    return max(0, scanner.num_records - 1)


def _num_records(file: CorpusFile, target: Path) -> int:
    """Number of rows in a written file of the same format."""
    with pa.input_stream(target, compression=file.compression) as source:
        if file.format is Format.JSONL:
            return sum(len(lines) for lines in json_line_blocks(source))
        scanner = RecordScanner(file.format)
        for _ in scan_blocks(source, scanner):
            pass
        return max(0, scanner.num_records - 1)
