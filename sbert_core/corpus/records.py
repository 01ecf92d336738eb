"""Where the records of a text file end, for its readers and writers alike.

In:  CSV, TSV or JSON lines, in blocks.
Out: for CSV and TSV the ends of records, found block by block; for JSON its lines.
Gives up: quotes that are closed in the wrong place; only one that is never closed is detected.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.storage import Storage

BLOCK_BYTES = 64 * 2**20  # of JSON; a row of a CSV must fit in one
SCAN_BYTES = 2**18  # of CSV at a time: numpy's temporary arrays stay in the cache
BOM = b"\xef\xbb\xbf"
JSON_BLANKS = b" \t\r\n"
LF, CR, QUOTE = b'\n\r"'
DELIMITERS = {Format.CSV: b",", Format.TSV: b"\t"}


def open_stream(storage: Storage, file: CorpusFile) -> pa.NativeFile:
    """The bytes of a file, decompressed."""
    return pa.input_stream(storage.open(file.path), compression=file.compression)


class RecordScanner:
    """Finds the ends of records as Arrow's CSV parser does.

    A quote opens a value at its start alone; inside, two quotes are one. In a TSV a quote is a
    character. A line feed, a carriage return or both end a record; empty lines are skipped.
    """

    def __init__(self, kind: Format) -> None:
        self.num_records = 0
        self.num_lines = 0
        self.is_quoted = False
        self._quote_line = 0
        self._has_quotes = kind is Format.CSV
        self._begins_value = np.zeros(256, bool)  # by the byte before
        self._begins_value[[ord(DELIMITERS[kind]), LF, CR]] = True
        self._length = 0  # of the record that has begun
        self._last = LF
        self._held = b""
        self._is_first = True

    @property
    def open_quote_line(self) -> int | None:
        """The line of a quote that is not closed so far; None without one."""
        return self._quote_line if self.is_quoted else None

    def scan(self, block: bytes, is_last: bool = False) -> tuple[bytes, np.ndarray, np.ndarray]:
        """Some bytes, the ends of records and of empty lines in them, and which are records.

        Quotes and carriage returns at the end of the block are held back until the next call:
        their meaning depends on what follows.
        """
        data = self._held + block
        size = len(data) if is_last else len(data.rstrip(b'"\r'))
        if self._is_first and len(data) < len(BOM) and not is_last:
            size = 0
        data, self._held = data[:size], data[size:]
        if not data:
            return b"", np.empty(0, np.int64), np.empty(0, bool)
        if self._is_first:
            self._is_first = False
            self._length = -len(BOM) if data.startswith(BOM) else 0
        array = np.frombuffer(data, np.uint8)
        ends = _line_ends(array)
        is_end = np.ones(len(ends), bool)
        if self._has_quotes:
            is_end = ~self._is_inside(array, ends)
        self.num_lines += len(ends)
        ends = ends[is_end]
        is_record = self._are_records(array, ends)
        self._last = data[-1] if self._length > 0 else LF
        return data, ends, is_record

    def _are_records(self, array: np.ndarray, ends: np.ndarray) -> np.ndarray:
        starts = np.concatenate([[-self._length], ends[:-1]])
        ends_both = (array[ends - 1] == LF) & (array[np.maximum(ends - 2, 0)] == CR) & (ends > 1)
        is_record = ends - starts[: len(ends)] > 1 + ends_both
        self.num_records += int(is_record.sum())
        self._length = len(array) - int(ends[-1]) if len(ends) else self._length + len(array)
        return np.asarray(is_record)

    def finish(self) -> tuple[bytes, np.ndarray, np.ndarray]:
        """The bytes held back; the last record may lack a line end."""
        found = self.scan(b"", is_last=True)
        self.num_records += self._length > 0
        return found

    def _is_inside(self, array: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Which line ends are inside quotes.

        An even run of quotes changes nothing. An odd one at the start of a value opens or closes;
        elsewhere it closes, or is a character of a value without quotes.
        """
        quotes = np.flatnonzero(array == QUOTE)
        first = np.flatnonzero(np.diff(quotes, prepend=-2) > 1)
        is_odd = np.diff(first, append=len(quotes)) % 2 == 1
        runs = quotes[first[is_odd]]
        if not len(runs):
            return np.full(len(ends), self.is_quoted)
        before = np.where(runs > 0, array[np.maximum(runs - 1, 0)], self._last)
        toggles = self._begins_value[before] | (runs == -self._length) & (self._length < 0)
        number = np.cumsum(toggles)
        closed = np.maximum.accumulate(np.where(toggles, -1, np.arange(len(runs))))
        since = np.where(closed >= 0, number - number[closed], number + self.is_quoted)
        states = since % 2 == 1
        place = np.searchsorted(runs, ends) - 1
        inside = np.where(place >= 0, states[np.maximum(place, 0)], self.is_quoted)
        self.is_quoted = bool(states[-1])
        self._quote_line = self.num_lines + int(np.searchsorted(ends, runs[-1], "right")) + 1
        return np.asarray(inside)


def _line_ends(array: np.ndarray) -> np.ndarray:
    """The position after each line feed, and after each carriage return without one."""
    returns = np.flatnonzero(array == CR)
    feeds = np.flatnonzero(array == LF)
    if not len(returns):
        return feeds + 1
    places = np.sort(np.concatenate([feeds, returns]))
    follower = array[np.minimum(places + 1, len(array) - 1)]
    is_both = (array[places] == CR) & (follower == LF)
    return np.asarray(places[~is_both] + 1)


def scan_blocks(
    source: pa.NativeFile, scanner: RecordScanner
) -> Iterator[tuple[bytes, np.ndarray, np.ndarray]]:
    """`scanner.scan` of a whole file, block by block."""
    while block := source.read(SCAN_BYTES):
        yield scanner.scan(block)
    yield scanner.finish()


def json_line_blocks(source: pa.NativeFile) -> Iterator[list[tuple[int, bytes]]]:
    """Lines with their numbers from 1 on, 64 MB at a time; blank lines are skipped.

    A line keeps its line end; the first one may begin with a byte order mark.
    """
    number, rest = 1, b""
    while True:
        data = rest
        while len(data) < BLOCK_BYTES and (more := source.read(BLOCK_BYTES - len(data))):
            data += more
        is_last = len(data) < BLOCK_BYTES
        while not is_last and b"\n" not in data:  # a very long line
            more = source.read(BLOCK_BYTES)
            data, is_last = data + more, not more
        end = len(data) if is_last else data.rfind(b"\n") + 1
        data, rest = data[:end], data[end:]
        lines = [line + b"\n" for line in data.split(b"\n")]
        last = lines.pop()[:-1]
        lines += [last] if last else []
        yield [
            (place, line)
            for place, line in enumerate(lines, start=number)
            if line.removeprefix(BOM if place == 1 else b"").strip(JSON_BLANKS)
        ]
        number += len(lines)
        if is_last:
            return


def count_rows(storage: Storage, file: CorpusFile) -> int:
    """Number of rows of a text file, without the header."""
    with open_stream(storage, file) as source:
        if file.format is Format.JSONL:
            return sum(map(len, json_line_blocks(source)))
        scanner = RecordScanner(file.format)
        for _ in scan_blocks(source, scanner):
            pass
        return max(0, scanner.num_records - 1)
