"""Validity of texts.

In:  any Python object in the place of a text.
Out: None if it can be encoded, else the reason in a few words.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """Takes the place of the text of a row that is refused for another of its columns."""

    reason: str


def invalid_reason(text: object) -> str | None:
    """Why this value has no sentence vector; None for a usable text.

    Blank texts are refused rather than encoded: they would all share the vector of an empty
    sentence and pass for near-duplicates of each other.
    """
    if text is None:
        return "null"
    if isinstance(text, RefusedRow):
        return text.reason
    if isinstance(text, bytes):
        return _encoding_error(text)
    if not isinstance(text, str):
        return f"not a string but {type(text).__name__}"
    if not text:
        return "empty"
    if text.isspace():
        return "blank"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"lone surrogate at character {error.start}"
    return None


def _encoding_error(text: bytes) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"invalid UTF-8 at byte {error.start}"
    return "not a string but bytes"
