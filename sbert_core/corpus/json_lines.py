"""A file of JSON lines -> batches of its columns as Python values, and the type all rows have.

In:  a file, and the keys that are wanted.
Out: values as JSON has them. A column of several kinds becomes text: strings as they are, other
     values as JSON writes them. Strings that are all dates are times, as Arrow infers them, but
     not in columns of texts and ids.
"""

import io
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from sbert_core.corpus.files import CorpusFile
from sbert_core.corpus.parquet import CorruptFile
from sbert_core.corpus.records import BOM, json_line_blocks, stream_of
from sbert_core.storage import Storage

WHOLE = range(-(2**63), 2**63)
TIME = pa.timestamp("s")


class JsonRows:
    """Rows of one file. names: all keys seen so far, in the order they came."""

    def __init__(
        self,
        storage: Storage,
        file: CorpusFile,
        wanted: Iterable[str] | None,
        text_columns: Iterable[str] | None,
    ) -> None:
        """text_columns: whose strings are never times; None: all."""
        self.storage, self.file = storage, file
        self.text_columns = None if text_columns is None else set(text_columns)
        self.wanted = None if wanted is None else list(wanted)
        self.names: list[str] = []
        self.num_rows = 0

    @property
    def columns(self) -> list[str]:
        return [name for name in self.names if self.wanted is None or name in self.wanted]

    def batches(self) -> Iterator[dict[str, list]]:
        """Values by key, None where a row lacks it."""
        self.num_rows = 0
        seen = dict.fromkeys(self.names)
        with stream_of(self.storage, self.file) as raw:
            for lines in json_line_blocks(raw):
                rows = []
                for number, line in lines:
                    row = self._parsed(number, line)
                    if not row.keys() <= seen.keys():
                        seen |= dict.fromkeys(row)
                        self._refuse_odd_names(number, row)
                    if self.wanted is not None:
                        row = {name: row[name] for name in self.wanted if name in row}
                    rows.append(row)
                self.names = list(seen)
                self.num_rows += len(rows)
                if rows:
                    yield {name: [row.get(name) for row in rows] for name in self.columns}

    def widened(self, name: str, kind: pa.DataType, column: list) -> pa.DataType:
        """The type of the values so far and these."""
        if kind == pa.string():
            return kind
        try:
            found = _kind(column)
            is_text = self.text_columns is None or name in self.text_columns
            if found == pa.string() and not is_text and _times(column) is not None:
                found = TIME
            return _joined(kind, found)
        except _MixedKindsError:
            return pa.string()

    def converted(self, column: list, kind: pa.DataType) -> pa.Array:
        if kind == pa.string():
            column = [v if v is None or isinstance(v, str) else _json(v) for v in column]
        elif kind == TIME:
            return _times(column)
        elif pa.types.is_floating(kind) or pa.types.is_nested(kind):
            column = [_plain(value, kind) for value in column]
        try:
            return pa.array(column, kind)
        except UnicodeEncodeError:
            # Bad bytes and lone surrogates stay what they are, until their row is refused.
            raw = pa.array([_encoded(value) for value in column], _binary(kind))
            return raw.cast(options=pc.CastOptions(kind, allow_invalid_utf8=True))

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            text = line.removeprefix(BOM if number == 1 else b"")
            row = json.loads(text.decode(errors="surrogateescape"), object_pairs_hook=_unique)
        except RecursionError:
            reason = "it is nested too deeply"
        except ValueError as error:
            reason = f"no JSON: {getattr(error, 'msg', error)}"
        else:
            if isinstance(row, dict) or row is None:
                return row or {}
            reason = f"a JSON {type(row).__name__} where an object should be"
        raise CorruptFile(self.storage.uri, self.file.path, reason, number)

    def _refuse_odd_names(self, number: int, row: dict[str, Any]) -> None:
        try:
            "".join(row).encode()
        except UnicodeEncodeError:
            raise CorruptFile(
                self.storage.uri, self.file.path, "a key is no UTF-8", number
            ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("a key occurs twice")
    return row


class _MixedKindsError(Exception):
    """Values that have no type in common but text."""


def _kind(values: Iterable) -> pa.DataType:
    """The type of all values."""
    values = [value for value in values if value is not None]
    found = set(map(type, values))
    if found == {int}:
        return pa.int64() if all(value in WHOLE for value in values) else pa.float64()
    if found and found <= {int, float}:
        return pa.float64()
    if found == {list}:
        return pa.list_(_kind(item for value in values for item in value))
    if found == {dict}:
        names = dict.fromkeys(name for value in values for name in value)
        return pa.struct([(name, _kind(v.get(name) for v in values)) for name in names])
    kinds = {(): pa.null(), (bool,): pa.bool_(), (str,): pa.string()}
    if tuple(found) not in kinds:
        raise _MixedKindsError
    return kinds[tuple(found)]


def _joined(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type that holds values of both."""
    if a == b or b == pa.null():
        return a
    if a == pa.null():
        return b
    if {a, b} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(_joined(a.value_type, b.value_type))
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        fields = {field.name: field.type for field in a}
        for field in b:
            fields[field.name] = _joined(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    raise _MixedKindsError


def _times(column: list) -> pa.Array | None:
    """Strings as times, by the rules of Arrow's JSON reader; None if one of them is none."""
    lines = "".join(json.dumps({"value": value}) + "\n" for value in column)
    schema = pa.schema([("value", TIME)])
    try:
        table = pa.json.read_json(
            io.BytesIO(lines.encode()), parse_options=pa.json.ParseOptions(explicit_schema=schema)
        )
    except pa.ArrowInvalid:
        return None
    return table["value"].combine_chunks()


def _plain(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401
    """Whole numbers as floats where the column's type is that: Arrow refuses large ones."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        try:
            return float(value)
        except OverflowError:
            return math.copysign(math.inf, value)
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value.get(field.name), field.type) for field in kind}
    return value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _encoded(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    if isinstance(value, dict):
        return {name: _encoded(item) for name, item in value.items()}
    return value


def _binary(kind: pa.DataType) -> pa.DataType:
    """The same type with bytes for strings."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_binary(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _binary(field.type)) for field in kind])
    return kind
