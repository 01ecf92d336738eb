"""A value of YAML -> the value of an option, by the option's declared type."""

from pathlib import Path

from pipelines.options import SpecOption, to_choice
from pipelines.syntax import split_words

WANTED = {bool: "true or false", int: "a whole number", float: "a number"}


def convert_value(value: object, option: SpecOption) -> object:
    """The value for the field of a spec; ValueError with the type that is wanted."""
    none = option.info.syntax.none if option.info.syntax is not None else ""
    if option.is_optional and (value is None or (none and value == none)):
        return None
    if option.length is not None:
        return _convert_items(value, option, option.length)
    return _convert_one(value, option)


def _convert_one(value: object, option: SpecOption) -> object:
    kind = option.kind
    if isinstance(value, bool):
        if kind is bool:
            return value
    elif isinstance(value, int | float) and kind is float:
        return float(value)
    elif isinstance(value, int) and kind is int:
        return value
    if kind not in WANTED and (text := _to_text(value)) is not None:
        if option.choices:
            return to_choice(option, text)
        return Path(text) if kind is Path else text
    raise ValueError(f"is {value!r}; give {WANTED.get(kind, 'a word')}")


def _to_text(value: object) -> str | None:
    """A scalar as text, a list as the command line takes one; None for other values."""
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return None if value is None or isinstance(value, bool | dict) else str(value)


def _convert_items(value: object, option: SpecOption, length: int) -> tuple[object, ...]:
    """A list, or words with commas between (a colon between two numbers)."""
    if isinstance(value, str):
        is_band = option.kind is float and ":" in value
        value = value.split(":") if is_band else split_words(value)
    items = value if isinstance(value, list | tuple) else [value]
    try:
        made = tuple(option.kind(item) for item in items)
    except (TypeError, ValueError):
        raise ValueError(f"is {value!r}; give a list of {option.kind.__name__}") from None
    if length and len(made) != length:
        raise ValueError(f"is {value!r}; give {length} values")
    return made
