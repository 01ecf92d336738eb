"""Names of columns: those reserved by a vectors artifact, and those carried over from the corpus.

In:  the values of --carry: `lang`, or `row=source_row` for the column `row` under another name.
Out: each published name with the column of the corpus it comes from; no name twice.

Readers of an artifact find ids, positions and vectors by the reserved names, so a column of the
corpus never takes one of them.
"""

import re
from collections.abc import Iterable

from sbert_core.corpus.errors import InvalidCarry

FIELD = re.compile(r"\{([^{}]+)\}")  # a column in the template of a text
CHUNK_COLUMNS = ("doc_id", "chunk", "start_char", "end_char")
RESERVED_COLUMNS = (
    "id",
    "vector",
    "content_hash",
    "file",
    "row",
    "num_chars",
    "num_tokens",
    "num_lost_tokens",
    "truncated",
    *CHUNK_COLUMNS,
)


def parse_carry(words: Iterable[str]) -> dict[str, str]:
    """The column of the corpus behind each published name, in the order of `words`.

    words: COLUMN or COLUMN=NAME. A column whose name holds a `=` needs a new name without one:
    `a=b=c` publishes `a=b` as `c`. A ValueError for a missing, reserved or repeated name.
    """
    found: dict[str, str] = {}
    for word in words:
        before, equals, name = word.rpartition("=")
        column = before if equals else name
        if not (column and name):
            raise InvalidCarry(word, name, " lacks a name; give COLUMN or COLUMN=NAME")
        if name in RESERVED_COLUMNS:
            raise InvalidCarry(
                word,
                name,
                f": {name!r} is a reserved name of vectors; publish yours under another one, as "
                f"{column}=source_{name}",
            )
        if name in found:
            raise InvalidCarry(
                word,
                name,
                f": {name!r} is carried already; carry it once, or under another name, as "
                f"{column}=other_{name}",
            )
        found[name] = column
    return found


def unreserved_names(columns: Iterable[str]) -> dict[str, str]:
    """A name to publish each column under: its own, unless that is reserved or holds a `=`."""
    wanted = list(dict.fromkeys(columns))
    names: dict[str, str] = {}
    for column in wanted:
        name = column.replace("=", "_")
        while (
            name in RESERVED_COLUMNS
            or name in names.values()
            or (name != column and name in wanted)
        ):
            name = f"source_{name}"
        names[column] = name
    return names
