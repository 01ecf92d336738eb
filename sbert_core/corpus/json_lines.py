"""Rows of a JSON lines file: batches of columns as Python values, and the type that fits all rows.

In:  a file, and the keys that are wanted.
Out: values as JSON has them. A column of several types becomes text: strings as they are, other
     values as JSON. Strings that are all dates become times, as Arrow infers them, except in
     columns of texts and ids.
"""

import io
import json
import math
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.files import CorpusFile
from sbert_core.corpus.records import BOM, json_line_blocks, open_stream
from sbert_core.storage import Storage

INT64 = range(-(2**63), 2**63)
TIME = pa.timestamp("s")


class JsonRows:
    """Rows of one file. names: all keys seen so far, in the order of their first row."""

    def __init__(
        self,
        storage: Storage,
        file: CorpusFile,
        wanted: Iterable[str] | None,
        text_columns: Iterable[str] | None,
    ) -> None:
        """wanted: keys to read; None: all. text_columns: never parsed as times; None: all."""
        self.storage, self.file = storage, file
        self.text_columns = None if text_columns is None else set(text_columns)
        self.wanted = None if wanted is None else list(wanted)
        self.names: list[str] = []
        self.num_rows = 0

    @property
    def columns(self) -> list[str]:
        """The wanted keys that occur."""
        return [name for name in self.names if self.wanted is None or name in self.wanted]

    def batches(self) -> Iterator[dict[str, list[object]]]:
        """Values by key, None where a row lacks it; CorruptFile with the line of a broken row."""
        self.num_rows = 0
        seen = dict.fromkeys(self.names)
        with open_stream(self.storage, self.file) as raw:
            for lines in json_line_blocks(raw):
                rows = []
                for number, line in lines:
                    row = self._parse_line(number, line)
                    if not row.keys() <= seen.keys():
                        seen |= dict.fromkeys(row)
                        self._check_names(number, row)
                    if self.wanted is not None:
                        row = {name: row[name] for name in self.wanted if name in row}
                    rows.append(row)
                self.names = list(seen)
                self.num_rows += len(rows)
                if rows:
                    yield {name: [row.get(name) for row in rows] for name in self.columns}

    def widen_type(self, name: str, kind: pa.DataType, column: list[object]) -> pa.DataType:
        """The type that fits the values so far (`kind`) and these."""
        if kind == pa.string():
            return kind
        try:
            found = _infer_type(column)
            is_text = self.text_columns is None or name in self.text_columns
            if found == pa.string() and not is_text and _parse_times(column) is not None:
                found = TIME
            return _unify_types(kind, found)
        except _MixedTypesError:
            return pa.string()

    def convert(self, column: list[object], kind: pa.DataType) -> pa.Array:
        """Values as an array of a type that `widen_type` has found."""
        if kind == pa.string():
            column = [v if v is None or isinstance(v, str) else _to_json(v) for v in column]
        elif kind == TIME:
            return _parse_times(column)
        elif pa.types.is_floating(kind) or pa.types.is_nested(kind):
            column = [_to_floats(value, kind) for value in column]
        try:
            return pa.array(column, kind)
        except UnicodeEncodeError:
            # Invalid bytes and lone surrogates are kept as they are; their row is refused later.
            raw = pa.array([_encode_surrogates(value) for value in column], _binary_type(kind))
            return raw.cast(options=pc.CastOptions(kind, allow_invalid_utf8=True))

    def _parse_line(self, number: int, line: bytes) -> dict[str, object]:
        try:
            text = line.removeprefix(BOM if number == 1 else b"")
            row = json.loads(
                text.decode(errors="surrogateescape"), object_pairs_hook=_reject_repeated_keys
            )
        except RecursionError:
            reason = "it is nested too deeply"
        except ValueError as error:
            reason = f"no JSON: {getattr(error, 'msg', error)}"
        else:
            if isinstance(row, dict) or row is None:
                return row or {}
            reason = f"a JSON {type(row).__name__} where an object should be"
        raise CorruptFile(self.storage.uri, self.file.path, reason, number)

    def _check_names(self, number: int, row: dict[str, object]) -> None:
        try:
            "".join(row).encode()
        except UnicodeEncodeError:
            raise CorruptFile(
                self.storage.uri, self.file.path, "a key is not UTF-8", number
            ) from None


def _reject_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("a key occurs twice")
    return row


class _MixedTypesError(Exception):
    """Values that have only text as a common type."""


def _infer_type(values: Iterable[object]) -> pa.DataType:
    """The type that fits all values."""
    values = [value for value in values if value is not None]
    found = set(map(type, values))
    if found == {int}:
        return pa.int64() if all(value in INT64 for value in values) else pa.float64()
    if found and found <= {int, float}:
        return pa.float64()
    if found == {list}:
        lists = [value for value in values if isinstance(value, list)]
        return pa.list_(_infer_type(item for value in lists for item in value))
    if found == {dict}:
        rows = [value for value in values if isinstance(value, dict)]
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.struct([(name, _infer_type(row.get(name) for row in rows)) for name in names])
    kinds = {(): pa.null(), (bool,): pa.bool_(), (str,): pa.string()}
    if tuple(found) not in kinds:
        raise _MixedTypesError
    return kinds[tuple(found)]


def _unify_types(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type that fits values of both."""
    if a == b or b == pa.null():
        return a
    if a == pa.null():
        return b
    if {a, b} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(_unify_types(a.value_type, b.value_type))
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        fields = {field.name: field.type for field in a}
        for field in b:
            fields[field.name] = _unify_types(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    raise _MixedTypesError


def _parse_times(column: list[object]) -> pa.Array | None:
    """Strings as times, by the rules of Arrow's JSON reader; None if one does not parse."""
    lines = "".join(json.dumps({"value": value}) + "\n" for value in column)
    schema = pa.schema([("value", TIME)])
    try:
        table = pa.json.read_json(
            io.BytesIO(lines.encode()), parse_options=pa.json.ParseOptions(explicit_schema=schema)
        )
    except pa.ArrowInvalid:
        return None
    return table["value"].combine_chunks()


def _to_floats(value: object, kind: pa.DataType) -> object:
    """Whole numbers as floats where the type needs floats: Arrow refuses those above 2**53."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        assert isinstance(value, int | float), "types are widened before values are converted"
        try:
            return float(value)
        except OverflowError:
            return math.copysign(math.inf, value)
    if isinstance(value, list):
        return [_to_floats(item, kind.value_type) for item in value]
    if isinstance(value, dict):
        return {field.name: _to_floats(value.get(field.name), field.type) for field in kind}
    return value


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _encode_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, list):
        return [_encode_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {name: _encode_surrogates(item) for name, item in value.items()}
    return value


def _binary_type(kind: pa.DataType) -> pa.DataType:
    """The same type with bytes instead of strings."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_binary_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _binary_type(field.type)) for field in kind])
    return kind
