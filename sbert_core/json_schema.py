"""JSON that may come from elsewhere -> values whose shape is known, or a word on what is wrong.

In:  a value and a pattern: a type, [pattern] for a list of such, {name: pattern} for an object that
     has these names at least ("name?" may be missing), {str: pattern} for one with any names;
     (pattern, None) where nothing will do.
Out: the value. COUNT is a whole number from 0 up; a float is finite, a NUMBER need not be.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from sbert_core.storage import Storage

COUNT, NUMBER = "a count", "a number"
MOST = 2**62  # what is counted fits into 64 bits
WORDS = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false",
         dict: "an object", list: "a list", COUNT: COUNT, NUMBER: NUMBER}  # fmt: skip


def read_json(storage: Storage, name: str, pattern: Any) -> Any:  # noqa: ANN401
    """The value of a JSON file; a broken one names itself."""
    place = f"{storage.uri}/{name}"
    try:
        value = json.loads(storage.read(name))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} is no JSON ({error}); make it again") from None
    return validate(value, pattern, place)


def validate(value: Any, pattern: Any, place: str) -> Any:  # noqa: ANN401
    """The value, if it has the shape."""
    if isinstance(pattern, tuple):
        if value is None:
            return None
        pattern = pattern[0]
    if isinstance(pattern, Mapping):
        _check_object(value, pattern, place)
    elif isinstance(pattern, list):
        if not isinstance(value, list):
            raise _unlike(value, list, place)
        for number, item in enumerate(value):
            validate(item, pattern[0], f"{place}[{number}]")
    elif not _is(value, pattern):
        raise _unlike(value, pattern, place)
    return value


def _check_object(value: Any, pattern: Mapping[Any, Any], place: str) -> None:  # noqa: ANN401
    if not isinstance(value, dict):
        raise _unlike(value, dict, place)
    if str in pattern:
        pattern = dict.fromkeys(value, pattern[str])
    for word, inner in pattern.items():
        name = word.removesuffix("?")
        if name in value:
            validate(value[name], inner, f"{place}: {name}")
        elif word == name:
            raise ValueError(f"{place} has no {name!r}; it is broken or of another version")


def _is(value: Any, kind: Any) -> bool:  # noqa: ANN401
    if isinstance(value, bool):  # to Python a number as well
        return kind is bool
    if kind in (COUNT, int):
        return isinstance(value, int) and (0 if kind is COUNT else -MOST) <= value <= MOST
    if kind in (NUMBER, float):
        is_number = isinstance(value, float) or (isinstance(value, int) and abs(value) <= MOST)
        return is_number and (kind is NUMBER or math.isfinite(value))
    return isinstance(value, kind)


def _unlike(value: Any, kind: Any, place: str) -> ValueError:  # noqa: ANN401
    return ValueError(f"{place} is {str(value)[:60]!r}, not {WORDS[kind]}; it is broken")
