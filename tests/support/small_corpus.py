"""A corpus small enough to be kept in memory beside its files.

Edited at random, written in any format, and read back by the standard library and pyarrow alone.
"""

import csv
import gzip
import io
import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from support.encoders import WORDS

FORMATS = ("parquet", "csv", "tsv", "jsonl", "csv.gz", "jsonl.gz")
NAMES = ("a", "b", "sub/a", "sub/b", "year=2020/a", "year=2021/a", "z é", "100%", "x#1")
LANGUAGES = ("en", "de", "e")
SCHEMA = pa.schema(
    [("id", pa.string()), ("text", pa.string()), ("lang", pa.string()), ("row", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the corpus. `row` is a user's own column, named like one of ours."""

    id: str
    text: str | None
    lang: str
    row: int

    @property
    def is_valid(self) -> bool:
        return self.text is not None and bool(self.text.strip())


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as a user writes it, and as Python understands it."""

    text: str | None
    holds: Callable[[Row], bool]


CONDITIONS = (
    Condition(None, lambda row: True),
    Condition("lang == 'en'", lambda row: row.lang == "en"),
    Condition("lang in ('en')", lambda row: row.lang == "en"),
    Condition("lang in ('de', 'e') and row < 60", lambda r: r.lang in ("de", "e") and r.row < 60),
    Condition("not lang = 'de'", lambda row: row.lang != "de"),
    Condition("row < 0", lambda row: False),
)


def text_pool(rng: random.Random) -> list[str | None]:
    """Texts with near and exact repeats, characters that formats quote, and some that are bad."""
    pool: list[str | None] = [None, "", "  ", 'a "word", said', "two\nlines", "word é 字", "-1"]
    for _ in range(16):
        words = rng.choices(WORDS, k=rng.choice((2, 5, 9, 14)))
        pool.append(" ".join(words))
        words[rng.randrange(len(words))] = rng.choice(WORDS)
        pool.append(" ".join(words))
    pool += [" ".join(rng.choices(WORDS, k=90)) for _ in range(2)]  # longer than the model
    return pool


class SmallCorpus:
    """Files of rows below a folder, and the same rows in memory."""

    def __init__(self, folder: Path, rng: random.Random, *, has_ids: bool) -> None:
        self.folder = folder
        self.has_ids = has_ids
        self.rng = rng
        self.pool = text_pool(rng)
        self.num_made = 0
        self.files: dict[str, list[Row]] = {}
        for _ in range(3):
            self.add_file()

    def rows(self, condition: Condition, limit: int | None) -> list[tuple[str, int, Row]]:
        """File, place and row of what a job takes, in its order."""
        found = [
            (name, place, row)
            for name in sorted(self.files, key=str.encode)
            for place, row in enumerate(self.files[name])
            if condition.holds(row)
        ]
        return found if limit is None else found[:limit]

    # -- edits ---------------------------------------------------------------------------------

    def new_row(self) -> Row:
        self.num_made += 1
        text = self.rng.choice(self.pool)
        if self.rng.random() < 0.1:
            text = " ".join(self.rng.choices(WORDS, k=6))
        return Row(
            f"r{self.num_made}", text, self.rng.choice(LANGUAGES), self.rng.randrange(0, 100)
        )

    def add_file(self) -> None:
        free = [name for name in NAMES if not any(f.split(".")[0] == name for f in self.files)]
        if free:
            name = f"{self.rng.choice(free)}.{self.rng.choice(FORMATS)}"
            self._put(name, [self.new_row() for _ in range(self.rng.randrange(1, 14))])

    def remove_file(self) -> None:
        if len(self.files) > 1:
            name = self._any()
            del self.files[name]
            (self.folder / name).unlink()

    def edit(self) -> None:
        name = self._any()
        rows = list(self.files[name])
        for place in self.rng.sample(range(len(rows)), min(len(rows), self.rng.randrange(1, 4))):
            change = self.new_row()
            rows[place] = replace(rows[place], **_some(self.rng, change))
        self._put(name, rows)

    def add_rows(self) -> None:
        name = self._any()
        rows = list(self.files[name])
        for _ in range(self.rng.randrange(1, 5)):
            rows.insert(self.rng.randrange(len(rows) + 1), self.new_row())
        self._put(name, rows)

    def remove_rows(self) -> None:
        """Some rows, or all of a file: it stays, without any."""
        name = self._any()
        share = self.rng.choice((0.3, 0.3, 1.0))
        self._put(name, [row for row in self.files[name] if self.rng.random() >= share])

    def reorder(self) -> None:
        name = self._any()
        self._put(name, self.rng.sample(self.files[name], len(self.files[name])))

    def move_rows(self) -> None:
        """Rows leave one file for another."""
        source, target = self._any(), self._any()
        if source != target:
            rows = self.files[source]
            cut = self.rng.randrange(len(rows) + 1)
            self._put(target, [*self.files[target], *rows[cut:]])
            self._put(source, rows[:cut])

    def swap(self) -> None:
        """Two files change places; their sizes and times go with them."""
        first, second = self._any(), self._any()
        if first != second and _format(first) == _format(second):
            beside = self.folder / ".swapped"
            os.rename(self.folder / first, beside)
            os.rename(self.folder / second, self.folder / first)
            os.rename(beside, self.folder / second)
            self.files[first], self.files[second] = self.files[second], self.files[first]

    def rename(self) -> None:
        name = self._any()
        free = [stem for stem in NAMES if not any(f.split(".")[0] == stem for f in self.files)]
        if free:
            other = f"{self.rng.choice(free)}.{_format(name)}"
            (self.folder / other).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).rename(self.folder / other)
            self.files[other] = self.files.pop(name)

    def touch(self) -> None:
        os.utime(self.folder / self._any())

    def change_format(self) -> None:
        name = self._any()
        rows = self.files.pop(name)
        (self.folder / name).unlink()
        self._put(f"{name.split('.')[0]}.{self.rng.choice(FORMATS)}", rows)

    def _any(self) -> str:
        return self.rng.choice(sorted(self.files))

    def _put(self, name: str, rows: list[Row]) -> None:
        if _format(name) == "tsv":  # which has no quotes
            rows = [replace(row, text=row.text and row.text.replace("\n", " ")) for row in rows]
        self.files[name] = rows
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(written(rows, _format(name), self.has_ids, self.rng))


def _some(rng: random.Random, row: Row) -> dict[str, object]:
    """New values for one to three columns; ids stay."""
    names = rng.sample(("text", "lang", "row"), rng.randrange(1, 4))
    return {name: getattr(row, name) for name in names}


def _format(name: str) -> str:
    return name.partition(".")[2]


def written(rows: list[Row], kind: str, has_ids: bool, rng: random.Random) -> bytes:
    """The bytes of a file."""
    names = [name for name in SCHEMA.names if has_ids or name != "id"]
    values = [{name: getattr(row, name) for name in names} for row in rows]
    plain, _, packed = kind.partition(".")
    if plain == "parquet":
        sink = io.BytesIO()
        schema = pa.schema([SCHEMA.field(name) for name in names])
        table = pa.Table.from_pylist(values, schema)
        pq.write_table(table, sink, row_group_size=rng.choice((1, 3, 1000)))
        return sink.getvalue()
    if plain == "jsonl":
        text = "".join(json.dumps(v, ensure_ascii=rng.random() < 0.5) + "\n" for v in values)
    elif plain == "tsv":
        lines = [names, *(_comparable(list(v.values())) for v in values)]
        text = "".join("\t".join(line) + "\n" for line in lines)
    else:
        sink_text = io.StringIO()
        writer = csv.writer(sink_text, lineterminator="\n")
        writer.writerows([names, *(v.values() for v in values)])
        text = sink_text.getvalue()
    data = text.encode()
    return gzip.compress(data, mtime=0) if packed else data


def read_rows(path: Path, has_ids: bool) -> list[tuple]:
    """The rows of a file by another reader than ours; a missing text is an empty one."""
    name = path.name
    names = [column for column in SCHEMA.names if has_ids or column != "id"]
    if ".parquet" in name:
        values = pq.read_table(path).to_pylist()
    else:
        data = path.read_bytes()
        text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
        if ".jsonl" in name:
            values = [json.loads(line) for line in text.split("\n")[:-1]]
        elif ".tsv" in name:
            head, *lines = [line.split("\t") for line in text.split("\n")[:-1]]
            values = [dict(zip(head, line, strict=True)) for line in lines]
        else:
            values = list(csv.DictReader(io.StringIO(text, newline="")))
    return [_comparable([value[column] for column in names]) for value in values]


def plain_rows(rows: list[Row], has_ids: bool) -> list[tuple]:
    """Rows in memory as `read_rows` gives those of a file."""
    names = [column for column in SCHEMA.names if has_ids or column != "id"]
    return [_comparable([getattr(row, column) for column in names]) for row in rows]


def _comparable(values: list) -> tuple:
    return tuple("" if value is None else str(value) for value in values)
