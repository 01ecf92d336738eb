"""Names of columns: which ones a vectors artifact has of its own, and what carried ones are called.

In:  the words of --carry: `lang`, or `row=source_row` for the column `row` under another name.
Out: each published name with the column of the corpus it comes from. No name is published twice.

Every reader of an artifact finds ids, places and vectors by these names, so a column of the corpus
never takes one of them. What a job adds for itself alone is kept beside a table, not in it.
"""

import re
from collections.abc import Iterable

FIELD = re.compile(r"\{([^{}]+)\}")  # a column in the template of a text
CHUNK_COLUMNS = ("doc_id", "chunk", "start_char", "end_char")
OWN_COLUMNS = (
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


def carried_columns(words: Iterable[str]) -> dict[str, str]:
    """The column of the corpus behind each published name, in the order of the words.

    A column whose name holds a `=` needs a name without one: `a=b=c` publishes `a=b` as `c`.
    """
    found: dict[str, str] = {}
    for word in words:
        before, equals, name = word.rpartition("=")
        column = before if equals else name
        if not (column and name):
            raise ValueError(f"carry {word!r} lacks a name; give COLUMN or COLUMN=NAME")
        if name in OWN_COLUMNS:
            raise ValueError(
                f"carry {word!r}: vectors have a column {name!r} of their own; publish yours under "
                f"another name, as {column}=source_{name}"
            )
        if name in found:
            raise ValueError(
                f"carry {word!r}: {name!r} is carried already; carry it once, or under another "
                f"name, as {column}=other_{name}"
            )
        found[name] = column
    return found


def free_names(columns: Iterable[str]) -> dict[str, str]:
    """A name to publish each column under: its own, unless vectors have it or it cannot be one."""
    wanted = list(dict.fromkeys(columns))
    names: dict[str, str] = {}
    for column in wanted:
        name = column.replace("=", "_")
        while name in OWN_COLUMNS or name in names.values() or (name != column and name in wanted):
            name = f"source_{name}"
        names[column] = name
    return names
