"""JSON objects <-> frozen dataclasses, checked on the way in.

In:  a JSON value and the type it must have: a dataclass, str, int, float, bool, `X | None`,
     `tuple[X, ...]`, `dict[str, X]`, `object` for anything. `Count` is an int from 0 up; a float is
     finite, a `Number` need not be.
Out: the value, objects as dataclasses; a ValueError names the place of what does not fit. Keys that
     the dataclass lacks are ignored, missing ones take the field's default.

`encode` is the way back: keys in the order of the fields; a field made by `optional()` is left out
where it is None. A field with another key than its name has it in its metadata as `key`.
"""

import dataclasses
import math
import types
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")

Count = Annotated[int, "from 0 up"]
Number = Annotated[float, "finite or not"]
MAX_INT = 2**62  # a count fits into 64 bits
NAMES = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false"}


def optional() -> Any:  # noqa: ANN401 - the type of the field decides, as with dataclasses.field
    """A field that is None by default and is written only where it has a value."""
    return dataclasses.field(default=None, metadata={"optional": True})


def decode(kind: type[Record], value: object, place: str) -> Record:
    """The value as a `kind`; ValueError with `place` where it cannot be one."""
    form: Any = kind
    result: Record = _decoder(form)(value, place)
    return result


def encode(record: object) -> Any:  # noqa: ANN401 - JSON
    """Dataclasses as JSON objects, inside lists and objects too."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {
            _key(field): encode(value)
            for field in dataclasses.fields(record)
            if (value := getattr(record, field.name)) is not None
            or not field.metadata.get("optional")
        }
    if isinstance(record, dict):
        return {key: encode(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [encode(value) for value in record]
    return record


def _key(field: dataclasses.Field[Any]) -> str:
    key: str = field.metadata.get("key", field.name)
    return key


@cache
def _decoder(kind: Any) -> Callable[[object, str], Any]:  # noqa: ANN401 - any type form
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record_decoder(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        [inner] = [_decoder(choice) for choice in arguments if choice is not type(None)]
        return lambda value, place: None if value is None else inner(value, place)
    if origin is tuple:
        return _list_decoder(_decoder(arguments[0]))
    if origin is dict:
        return _object_decoder(_decoder(arguments[1]))
    if kind is object:
        return lambda value, place: value
    return _plain_decoder(kind)


def _record_decoder(kind: type) -> Callable[[object, str], object]:
    hints = get_type_hints(kind, include_extras=True)
    fields = [
        (
            field.name,
            _key(field),
            _decoder(hints[field.name]),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    ]

    def decode_record(value: object, place: str) -> object:
        known = _as_object(value, place)
        found = {}
        for name, key, inner, is_needed in fields:
            if key in known:
                found[name] = inner(known[key], f"{place}: {key}")
            elif is_needed:
                raise ValueError(f"{place} has no {key!r}; it is broken or of another version")
        return kind(**found)

    return decode_record


def _list_decoder(inner: Callable[[object, str], object]) -> Callable[[object, str], object]:
    def decode_list(value: object, place: str) -> tuple[object, ...]:
        if not isinstance(value, list | tuple):
            raise _unlike(value, "a list", place)
        return tuple(inner(item, f"{place}[{number}]") for number, item in enumerate(value))

    return decode_list


def _object_decoder(inner: Callable[[object, str], object]) -> Callable[[object, str], object]:
    def decode_object(value: object, place: str) -> dict[str, object]:
        known = _as_object(value, place)
        return {name: inner(item, f"{place}: {name}") for name, item in known.items()}

    return decode_object


def _plain_decoder(kind: Any) -> Callable[[object, str], object]:  # noqa: ANN401 - any type form
    is_count, is_number = kind is Count, kind is Number
    plain = int if is_count else float if is_number else kind
    name = "a count" if is_count else "a number" if is_number else NAMES[plain]

    def decode_plain(value: object, place: str) -> object:
        if not _is_plain(value, plain) or (is_count and value < 0):  # type: ignore[operator]
            raise _unlike(value, name, place)
        if plain is float and not is_number and not math.isfinite(value):  # type: ignore[arg-type]
            raise _unlike(value, name, place)
        return value

    return decode_plain


def _is_plain(value: object, kind: type) -> bool:
    if isinstance(value, bool):  # to Python a number as well
        return kind is bool
    if isinstance(value, int):
        return kind in (int, float) and abs(value) <= MAX_INT
    return isinstance(value, kind)


def _as_object(value: object, place: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _unlike(value, "an object", place)
    return value


def _unlike(value: object, wanted: str, place: str) -> ValueError:
    return ValueError(f"{place} is {str(value)[:60]!r}, not {wanted}; it is broken")
