"""What a command prints at the end."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered report. notes: lines for stderr. is_error: the text goes to stderr as well.

    is_coloured: the text has colour codes and is printable already; all other text is escaped
    before a terminal gets it.
    """

    text: str
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    is_error: bool = False
    is_coloured: bool = False
