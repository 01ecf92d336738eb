"""Spellings of values on the command line; a ValueError explains what is wrong with one."""

from pipelines.options import Syntax


def split_words(text: str) -> tuple[str, ...]:
    """'a, b' as ('a', 'b')."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def parse_ints(text: str) -> tuple[int, ...]:
    """'256,128' as (256, 128)."""
    try:
        return tuple(int(word) for word in split_words(text))
    except ValueError:
        raise ValueError(f"{text!r} is not 256,128") from None


def parse_range(text: str, separator: str = ",") -> tuple[float, float]:
    """'0,5' as (0.0, 5.0)."""
    try:
        low, high = (float(part) for part in text.split(separator))
    except ValueError:
        raise ValueError(f"{text!r} is not LOW{separator}HIGH") from None
    return low, high


def parse_band(text: str) -> tuple[float, float]:
    """'0.85:0.95' as (0.85, 0.95)."""
    return parse_range(text, ":")


def parse_count(text: str) -> int | None:
    """A whole number; None for 'auto'."""
    try:
        return None if text == "auto" else int(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a whole number nor auto") from None


def unescape(template: str) -> str:
    r"""A shell's '\n' and '\t' as the characters they mean."""
    return template.replace(r"\n", "\n").replace(r"\t", "\t")


WORDS = Syntax(split_words)
INTS = Syntax(parse_ints)
RANGE = Syntax(parse_range)
BAND = Syntax(parse_band, separator=":")
COUNT_OR_AUTO = Syntax(parse_count, none="auto")
TEMPLATE = Syntax(unescape)
