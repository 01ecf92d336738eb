"""Words of a corpus -> words a terminal shows and does not act on.

Texts, ids, names of files and columns come from whoever wrote the corpus. Raw, they could retitle
or clear the terminal, write to its clipboard, or show a line in another order than it is in.
"""

import re

# Control characters but the line feed; marks, isolates and overrides of direction; the two other
# separators of lines; lone halves of surrogate pairs, which no stream can encode.
ACTED_ON = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb"
    "\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""The text with \uXXXX for every character a terminal acts on; JSON keeps its meaning."""
    return ACTED_ON.sub(lambda match: _escaped(match[0]), text)


def one_line(text: object) -> str:
    """The same of a value that stands inside a line, be it an id or a name."""
    return printable(str(text)).replace("\n", "\\u000a")


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
