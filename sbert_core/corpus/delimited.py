"""Rows of a CSV or TSV file: batches of columns as text, and the type that fits all rows.

In:  a file, and the columns that are wanted.
Out: strings as they are in the file. Types follow from all rows by Arrow's own inference: numbers,
     booleans and times where every row parses as one, else text.
"""

import io
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sbert_core.corpus import records
from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.records import DELIMITERS, RecordScanner, open_stream, scan_blocks
from sbert_core.storage import Storage

# In the order in which Arrow tries them: a column has the first type that all its rows parse as.
TYPE_LADDER = (
    pa.null(),
    pa.int64(),
    pa.bool_(),
    pa.date32(),
    pa.time32("s"),
    pa.timestamp("s"),
    pa.timestamp("s", "UTC"),
    pa.timestamp("ns"),
    pa.timestamp("ns", "UTC"),
    pa.float64(),
    pa.string(),
)
NO_DELIMITER = "\x1f"  # occurs in no value that parses as another type than text


class DelimitedRows:
    """Rows of one file. names: of all its columns; the same name may occur twice."""

    def __init__(
        self,
        storage: Storage,
        file: CorpusFile,
        wanted: Iterable[str] | None,
        text_columns: Iterable[str] | None,
    ) -> None:
        """wanted: columns to read; None: all. text_columns: those that stay text; None: all."""
        self.storage, self.file = storage, file
        self.names = self._header()
        unique = [name for name in self.names if self.names.count(name) == 1]
        self.columns = [name for name in unique if wanted is None or name in set(wanted)]
        self.text_columns = set(self.columns if text_columns is None else text_columns)
        self.num_rows = 0

    def batches(self) -> Iterator[dict[str, pa.Array]]:
        """Columns as strings, batch by batch.

        CorruptFile for a quote that is never closed, and where Arrow finds other rows than the
        record scanner.
        """
        if not self.names:
            return
        self.num_rows = 0
        with open_stream(self.storage, self.file) as raw:
            watched = _CountingReader(raw, RecordScanner(self.file.format))
            try:
                for batch in self._reader(watched):
                    self.num_rows += batch.num_rows
                    yield {name: batch.column(name) for name in self.columns}
            except pa.ArrowInvalid:
                watched.drain()
                self._check_quotes(watched.scanner)
                raise
        self._check_quotes(watched.scanner)
        if watched.scanner.num_records - 1 != self.num_rows:
            raise CorruptFile(
                self.storage.uri,
                self.file.path,
                f"{watched.scanner.num_records - 1:,} records by its lines and quotes, but "
                f"{self.num_rows:,} rows",
            )

    def widen_type(self, name: str, kind: pa.DataType, column: pa.Array) -> pa.DataType:
        """The first type of the ladder, from `kind` on, that all values parse as."""
        if name in self.text_columns:
            return pa.string()
        rungs = TYPE_LADDER[TYPE_LADDER.index(kind) :]
        return next(rung for rung in rungs if _parse_as(column, rung) is not None)

    def convert(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """Strings as values of a type that `widen_type` has found."""
        typed = _parse_as(column, kind)
        assert typed is not None, "types are widened before values are converted"
        return typed

    def _header(self) -> list[str]:
        """Column names of the first record; none for a file without records."""
        scanner, header = RecordScanner(self.file.format), b""
        with open_stream(self.storage, self.file) as raw:
            for data, ends, is_record in scan_blocks(raw, scanner):
                found = ends[is_record]
                header += data[: found[0]] if len(found) else data
                if len(found):
                    break
            else:
                self._check_quotes(scanner)
        if not scanner.num_records:
            return []
        parsed = pa.csv.read_csv(
            io.BytesIO(header + b"\n"), parse_options=_parse_options(self.file.format)
        )
        try:
            names: list[str] = parsed.column_names
            return names
        except UnicodeDecodeError as error:
            reason = f"its header is not UTF-8 at byte {error.start} of a name"
            raise CorruptFile(self.storage.uri, self.file.path, reason) from error

    def _reader(self, raw: "_CountingReader") -> pa.csv.CSVStreamingReader:
        columns = self.columns or self.names[:1]  # to Arrow an empty list means all columns
        return pa.csv.open_csv(
            pa.PythonFile(raw, "r"),
            read_options=pa.csv.ReadOptions(block_size=records.BLOCK_BYTES),
            parse_options=_parse_options(self.file.format),
            convert_options=pa.csv.ConvertOptions(
                check_utf8=False,
                include_columns=columns,
                column_types=dict.fromkeys(columns, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )

    def _check_quotes(self, scanner: RecordScanner) -> None:
        line = scanner.open_quote_line
        if line is not None:
            reason = "a quote that is never closed"
            raise CorruptFile(self.storage.uri, self.file.path, reason, line)


def _parse_options(kind: Format) -> pa.csv.ParseOptions:
    # In a TSV a quote is an ordinary character: public data sets hold unpaired ones, and treating
    # them as quoting would join rows.
    delimiter = DELIMITERS[kind].decode()
    if kind is Format.TSV:
        return pa.csv.ParseOptions(delimiter=delimiter, quote_char=False)
    return pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


class _CountingReader(io.RawIOBase):
    """Counts records while Arrow reads a file; adds a line end to a last line without one."""

    def __init__(self, raw: pa.NativeFile, scanner: RecordScanner) -> None:
        self.scanner = scanner
        self._raw = raw
        self._last = b"\n"
        self._is_finished = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._raw.read(size)
        while len(data) < size and (more := self._raw.read(size - len(data))):
            data += more
        for start in range(0, len(data), records.SCAN_BYTES):
            self.scanner.scan(data[start : start + records.SCAN_BYTES])
        if len(data) < size and not self._is_finished:
            self._is_finished = True
            self.scanner.finish()
            # Arrow treats a header without a line end as an empty file.
            return data if (data or self._last)[-1:] in b"\r\n" else data + b"\n"
        self._last = data[-1:] or self._last
        return data

    def drain(self) -> None:
        """Read to the end, so that all records are counted."""
        while self.read(records.SCAN_BYTES):
            pass


def _parse_as(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Strings as another type, by the rules of Arrow's CSV reader; None if one does not parse."""
    if kind == pa.string():
        return column
    if kind == pa.null():
        return pa.nulls(len(column)) if column.null_count == len(column) else None
    values = column.cast(pa.binary()).fill_null(b"")
    lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    text = pc.binary_join(lines, b"\n")[0].as_py() + b"\n"
    try:
        table = pa.csv.read_csv(
            io.BytesIO(text),
            read_options=pa.csv.ReadOptions(
                column_names=["value"], block_size=max(1, len(text)), use_threads=False
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=NO_DELIMITER, quote_char=False, ignore_empty_lines=False
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types={"value": kind}, strings_can_be_null=True, null_values=[""]
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(column):  # a value of several lines is text
        return None
    return table["value"].combine_chunks()
