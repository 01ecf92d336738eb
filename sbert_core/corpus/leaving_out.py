"""A corpus file -> the same file without some of its rows.

In:  a file of any format, and the numbers of rows to leave out.
Out: the rows that stay, in their order: Parquet with its schema and row groups, lines of CSV and
     JSON byte for byte.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.rows import CorruptFile, opened
from sbert_core.storage import Storage

LARGEST_FIELD = 2**31 - 1  # Python's own limit is 131,072 characters


def write_without(
    storage: Storage, file: CorpusFile, rows: np.ndarray, num_rows: int, target: Path
) -> int:
    """Write what stays; the number of rows, counted as they were written.

    num_rows: of the whole file.
    """
    stays = np.ones(num_rows, bool)
    stays[rows] = False
    if file.format is Format.PARQUET:
        return _write_groups(storage, file, stays, target)
    return _write_records(storage, file, stays, target)


def _write_groups(storage: Storage, file: CorpusFile, stays: np.ndarray, target: Path) -> int:
    with opened(storage, file.path) as source:
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
    return pq.read_metadata(target).num_rows


def _codec(metadata: pq.FileMetaData) -> str:
    if not metadata.num_row_groups or not metadata.num_columns:
        return "zstd"
    name = metadata.row_group(0).column(0).compression.lower()
    return "none" if name == "uncompressed" else name


def _write_records(storage: Storage, file: CorpusFile, stays: np.ndarray, target: Path) -> int:
    number = num_written = 0
    with (
        pa.input_stream(storage.open(file.path), compression=file.compression) as source,
        pa.output_stream(target, compression=file.compression) as sink,
    ):
        records = _records(source, file.format)
        if file.format is not Format.JSONL:
            sink.write(next(records, b""))
        for record in records:
            if number < len(stays) and stays[number]:
                sink.write(record)
                num_written += 1
            number += 1
    if number != len(stays):
        raise CorruptFile(
            f"{storage.uri}/{file.path} has {number:,} records by its quotes and {len(stays):,} "
            "rows to its reader; rewrite it as Parquet"
        )
    return num_written


def _records(source: pa.NativeFile, kind: Format) -> Iterator[bytes]:
    """Bytes of each row; a quoted value of a CSV may hold line ends. Empty lines are no rows."""
    # One character for each byte, and nothing but a line feed ends a line.
    text = io.TextIOWrapper(source, "latin-1", newline="\n")
    if kind is not Format.CSV:
        yield from (line.encode("latin-1") for line in text if line.strip("\r\n"))
        return
    seen: list[str] = []

    def lines() -> Iterator[str]:
        for line in text:
            seen.append(line)
            yield line

    csv.field_size_limit(LARGEST_FIELD)
    try:
        for fields in csv.reader(lines()):
            if fields:
                yield "".join(seen).encode("latin-1")
            seen.clear()
    except csv.Error as error:
        raise CorruptFile(
            f"a CSV cannot be cut into rows: {error}; rewrite it as Parquet"
        ) from None
