"""Words of the command line -> values; a ValueError says what is wrong with them."""

import re
from pathlib import Path


def words_of(text: str) -> tuple[str, ...]:
    """'a, b' as ('a', 'b')."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def numbers_of(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words_of(text))
    except ValueError:
        raise ValueError(f"{text!r} is not 256,128") from None


def range_of(text: str, mark: str = ",") -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(mark))
    except ValueError:
        raise ValueError(f"{text!r} is not LOW{mark}HIGH") from None
    return low, high


def band_of(text: str) -> tuple[float, float]:
    return range_of(text, ":")


def number_or_auto(text: str) -> int | None:
    try:
        return None if text == "auto" else int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number and not auto") from None


def unescaped(template: str) -> str:
    r"""A shell's '\n' and '\t' as the characters they mean."""
    return template.replace(r"\n", "\n").replace(r"\t", "\t")


def refuse_uri(out: Path) -> None:
    if re.match(r"[a-z0-9]+:/", str(out)):  # a path has lost one of the two slashes
        raise ValueError(f"out {out} is no folder; give a folder")


def check_positive(spec: object, *names: str) -> None:
    for name in names:
        value = getattr(spec, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; give a whole number from 1 up")
