"""A generator of broken inputs: files as disks, editors, other tools and bad intentions leave them.

In:  hypothesis, which draws cases.
Out: cases whose repr says everything: what is broken, where and how. A case breaks the same bytes
     every time, so a failure is repeated by running its case again.
"""

import bz2
import gzip
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from conftest import WORDS
from hypothesis import strategies as st

ROWS = 24
TEXTS = [f"{WORDS[n]} {WORDS[2 * n]} {WORDS[-n]} {n % 20}" for n in range(ROWS)]
PERMILLE = st.integers(0, 999)


class Poison:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.mark),)


# -- bytes -----------------------------------------------------------------------------------------

HOWS: dict[str, Callable[[bytes, int, bytes], bytes]] = {
    "cut": lambda data, at, fill: data[:at],
    "behead": lambda data, at, fill: data[at:],
    "flip": lambda data, at, fill: _over(data, at, bytes([data[at] ^ (1 << len(fill) % 8)])),
    "write over": lambda data, at, fill: _over(data, at, fill),
    "insert": lambda data, at, fill: data[:at] + fill + data[at:],
    "drop": lambda data, at, fill: data[:at] + data[at + len(fill) :],
    "repeat": lambda data, at, fill: data[:at] + data[max(0, at - len(fill)) :],
    "replace": lambda data, at, fill: fill,
}
FILLS = [
    b"\0", b"\xff", b"\xff" * 8, b"\0" * 512, b'"', b"\n", b"\r", b"{", b"PAR1", b"PK\3\4", b"null",
    b"\xef\xbb\xbf", b"\xff\xfe", b"9" * 40, b"../", b"\x80\x04.", b"", b"<html>",
]  # fmt: skip


def _over(data: bytes, at: int, fill: bytes) -> bytes:
    return data[:at] + fill + data[at + len(fill) :]


@dataclass(frozen=True)
class Bytes:
    """Damage to bytes. at: permille of the file."""

    how: str
    at: int
    fill: bytes

    def applied(self, data: bytes) -> bytes:
        if not data:
            return self.fill
        return HOWS[self.how](data, len(data) * self.at // 1000, self.fill)


def byte_damage() -> st.SearchStrategy[Bytes]:
    fills = st.sampled_from(FILLS) | st.binary(max_size=12)
    return st.builds(Bytes, st.sampled_from(list(HOWS)), PERMILLE, fills)


# -- JSON ------------------------------------------------------------------------------------------

NASTY_WORDS = ["", "..", "../../elsewhere", "/etc/hostname", "~", "s3://", "s3://k:s@b/x", "gs://b",
               "file:///etc/hostname", "\0", "\ud800", "x" * 300, "NaN", "-1", "vectors", "index",
               "pairs", "clusters", "float32", "int8", "{text}", "{", "None"]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 7, 2**31, 2**63, -(2**70), 10**400, 0.5, -0.0, 1e308, float("nan"), 1e-9,
           float("inf")]  # fmt: skip


def json_values() -> st.SearchStrategy[Any]:
    leaves = st.one_of(
        st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(NASTY_WORDS)
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(NASTY_WORDS[:6]), inner, max_size=2)
        ),
        max_leaves=4,
    )


@dataclass(frozen=True)
class Json:
    """An edit of a JSON document. steps: permille of the children at each level down."""

    steps: tuple[int, ...]
    how: str
    value: Any

    def applied(self, data: bytes) -> bytes:
        try:
            document = json.loads(data)
        except ValueError:  # broken already
            return json.dumps(self.value).encode()
        parent, key, node = None, None, document
        for step in self.steps:
            if not isinstance(node, dict | list) or not node:
                break
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            parent, key = node, keys[len(keys) * step // 1000]
            node = parent[key]
        if parent is None:
            return json.dumps(self.value).encode()
        if self.how == "set":
            parent[key] = self.value
        elif self.how == "add" and isinstance(node, dict):
            node["unheard of"] = self.value
        elif self.how == "add" and isinstance(node, list):
            node.append(self.value)
        elif self.how == "repeat" and isinstance(parent, list):
            parent.append(node)
        else:
            del parent[key]
        return json.dumps(document).encode()


def json_damage() -> st.SearchStrategy[Json]:
    steps = st.lists(PERMILLE, min_size=1, max_size=4).map(tuple)
    hows = st.sampled_from(["set", "set", "remove", "add", "repeat"])
    return st.builds(Json, steps, hows, json_values())


# -- files of a folder -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    """To one file of a folder. file: permille of its files; change: or what stands in its place."""

    file: int
    change: Bytes | Json | str

    def target(self, folder: Path) -> Path:
        """Each file has a share, and the one that lists the others three."""
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix)
        files += [path for path in files if path.name == "_manifest.json"] * 2
        return files[len(files) * self.file // 1000]

    def done(self, folder: Path, mark: Path) -> None:
        path = self.target(folder)
        if isinstance(self.change, Json) and path.suffix == ".json":
            path.write_bytes(self.change.applied(path.read_bytes()))
        elif isinstance(self.change, Bytes):
            path.write_bytes(self.change.applied(path.read_bytes()))
        else:
            path.unlink()
            if self.change == "folder":
                path.mkdir()
            elif self.change == "loop":
                path.symlink_to(path)
            elif self.change == "pickle":
                path.write_bytes(pickle.dumps(Poison(mark)))


def damage(json_share: bool = True) -> st.SearchStrategy[Damage]:
    words = st.sampled_from(["gone", "folder", "loop", "pickle"])
    changes = [byte_damage(), *([json_damage(), json_damage()] if json_share else []), words]
    return st.builds(Damage, PERMILLE, st.one_of(changes))


# -- tables ----------------------------------------------------------------------------------------


def plain_columns() -> dict[str, Any]:
    return {
        "id": [f"r{n}" for n in range(ROWS)],
        "text": pa.array(TEXTS),
        "query": pa.array(TEXTS),
        "answer": pa.array(TEXTS[::-1]),
        "year": list(range(ROWS)),
        "id_a": [f"r{n}" for n in range(ROWS)],
        "id_b": [f"r{(n + 1) % ROWS}" for n in range(ROWS)],
        "label": [n % 2 for n in range(ROWS)],
    }


ODD_COLUMNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "null texts": {"text": pa.nulls(ROWS)},
    "some null texts": {"text": pa.array([None, *TEXTS[1:-1], None])},
    "blank texts": {"text": [" ", "", "\t", "\n"] * (ROWS // 4)},
    "texts with NUL": {"text": ["a\0b", "\0", "\u2028", "\ufeff"] * (ROWS // 4)},
    "long texts": {"text": ["the word " * 5000, *TEXTS[1:]]},
    "numbers as texts": {"text": list(range(ROWS))},
    "lists as texts": {"text": [[text] for text in TEXTS]},
    "structs as texts": {"text": [{"text": text} for text in TEXTS]},
    "bytes as texts": {"text": pa.array([b"\xff\xfe", b"", *map(str.encode, TEXTS[2:])])},
    "bad UTF-8": {"text": pa.array([b"\xc3", *map(str.encode, TEXTS[1:])]).view(pa.string())},
    "large strings": {"text": pa.array(TEXTS, pa.large_string())},
    "string views": {"text": pa.array(TEXTS, pa.string_view())},
    "fixed bytes": {"text": pa.array([b"abcd"] * ROWS, pa.binary(4))},
    "a dictionary": {"text": pa.array(TEXTS).dictionary_encode()},
    "a dictionary of null": {"text": pa.array([None] * ROWS, pa.string()).dictionary_encode()},
    "null ids": {"id": [None, *range(1, ROWS)]},
    "only null ids": {"id": pa.nulls(ROWS)},
    "equal ids": {"id": ["same"] * ROWS},
    "floats as ids": {"id": [n + 0.5 for n in range(ROWS)]},
    "large ids": {"id": pa.array([2**64 - 1 - n for n in range(ROWS)], pa.uint64())},
    "bytes as ids": {"id": [b"\xff", *(b"%d" % n for n in range(1, ROWS))]},
    "ids of bad UTF-8": {
        "id": pa.array([b"\xff", *(b"%d" % n for n in range(1, ROWS))]).view(pa.string())
    },
    "ids in a dictionary": {"id": pa.array([f"r{n}" for n in range(ROWS)]).dictionary_encode()},
    "dates as ids": {"id": pa.array(range(ROWS), pa.timestamp("us"))},
    "decimals": {"id": pa.array([Decimal(n) for n in range(ROWS)], pa.decimal128(38, 0))},
    "labels in words": {"label": ["yes"] * ROWS},
    "null labels": {"label": pa.nulls(ROWS)},
    "pairs of others": {"id_a": ["nobody"] * ROWS},
    "years in words": {"year": ["long ago"] * ROWS},
    "years in lists": {"year": [[n] for n in range(ROWS)]},
}
SHAPES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "as it is": lambda table: table,
    "no rows": lambda table: table.slice(0, 0),
    "no text": lambda table: table.drop_columns(["text", "query"]),
    "no ids": lambda table: table.drop_columns(["id"]),
    "no columns": lambda table: table.select([]),
    "two of a name": lambda table: table.append_column("text", table["text"]),
    "odd names": lambda table: table.append_column("a/b\0..", table["text"]),
    "an own column": lambda table: table.append_column("vector", table["text"]),
}
PARQUET_OPTIONS: list[dict[str, Any]] = [
    {},
    {"row_group_size": 5},
    {"compression": "gzip", "use_dictionary": False},
    {"compression": "zstd", "data_page_version": "2.0", "write_page_index": True},
    {"version": "1.0", "compression": "none", "store_schema": False},
]


def parquet_bytes(columns: str, shape: str, options: int) -> bytes:
    table = SHAPES[shape](pa.table({**plain_columns(), **ODD_COLUMNS[columns]}))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **PARQUET_OPTIONS[options])
    return sink.getvalue().to_pybytes()


CSV_HEADS = [b"id,text,query,answer,year,id_a,id_b,label\n"] * 4 + [
    b"", b"\n", b"id\n", b"text,text\n", b'"id","text"\r\n', b"\xef\xbb\xbfid,text,year\n", b",\n",
    b"id,text" + b",x" * 2000 + b"\n", "id,text\n".encode("utf-16"), b"\0id,text\n",
]  # fmt: skip
CSV_LINES = [b"a,b\n", b'"r1,the\n', b'"r2","a ""quoted"" word"\n', b"\n", b"\r\n", b",,,,,,,\n",
             b"r9,\xff\xfe\n", b"r9,\0\n", b"r1,same id,,,,,,\n", b"a,b,c,d,e,f,g,h,i,j\n", b'"',
             b'r7,"two\nlines",q,a,1,r1,r2,1\n', b"r8,lonely\rreturn,q,a,1,r1,r2,1\n",
             b"r5," + b"word " * 9000 + b",q,a,1,r1,r2,0\n"]  # fmt: skip
JSON_LINES = [b"{}\n", b"[]\n", b"null\n", b"1\n", b'"text"\n', b"\n", b"{\n", b'{"text": \n',
              b'{"id": 1, "text": 2}\n', b'{"id": "a", "text": null}\n', b'{"text": ["a"]}\n',
              b'{"id": "r3", "text": "\\ud800"}\n', b'{"id": "r4", "text": "\\u0000"}\n',
              b'{"id": "r5", "text": "\xff"}\n', b'{"id": "r1", "text": "same id"}\n',
              b'{"id": "r6", "text": "a", "text": "b"}\n', b'{"id": NaN, "text": "a"}\n',
              b'{"id": "r7", "text": {"a": {"b": [1, {}]}}}\n', b'{"id": "x", "text": "a"} junk\n',
              b'{"id": "y", "text": "a"}{"id": "z", "text": "b"}\n', b"{'id': 'q'}\n", b"[" * 3000,
              b'{"id": 1e400, "text": "a"}\n', b'{"id": 99999999999999999999, "text": "a"}\n',
              b'{"id": "w", "text": "' + b"word " * 9000 + b'"}\n']  # fmt: skip
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


@dataclass(frozen=True)
class Parquet:
    """A Parquet file, odd in its columns, its shape or its bytes."""

    columns: str
    shape: str
    options: int
    changes: tuple[Bytes, ...]
    suffix: str = ".parquet"

    def data(self) -> bytes:
        return _changed(parquet_bytes(self.columns, self.shape, self.options), self.changes)


@dataclass(frozen=True)
class Lines:
    """A CSV, TSV or JSON lines file with odd lines among plain ones. odd: place and line."""

    suffix: str
    head: int
    odd: tuple[tuple[int, bytes], ...]
    changes: tuple[Bytes, ...]
    packed: str = ""

    def data(self) -> bytes:
        rows = pa.table(plain_columns()).to_pylist()
        if self.suffix == ".jsonl":
            head, lines = b"", [json.dumps(row).encode() + b"\n" for row in rows]
        else:
            head = CSV_HEADS[self.head]
            lines = [(",".join(map(str, row.values())) + "\n").encode() for row in rows]
        for place, line in self.odd:
            lines.insert(len(lines) * place // 1000, line)
        text = head + b"".join(lines)
        if self.suffix == ".tsv":
            text = text.replace(b",", b"\t")
        before, after = self.changes[:1], self.changes[1:]
        return _changed(COMPRESSIONS[self.packed](_changed(text, before)), after)


def _changed(data: bytes, changes: tuple[Bytes, ...]) -> bytes:
    for change in changes:
        data = change.applied(data)
    return data


def _few(most: int) -> st.SearchStrategy[tuple[Bytes, ...]]:
    return st.lists(byte_damage(), max_size=most).map(tuple)


def parquet_files() -> st.SearchStrategy[Parquet]:
    options = st.integers(0, len(PARQUET_OPTIONS) - 1)
    return st.one_of(
        st.builds(
            Parquet,
            st.sampled_from(list(ODD_COLUMNS)),
            st.sampled_from(list(SHAPES)),
            options,
            st.just(()),
        ),
        st.builds(
            Parquet,
            st.sampled_from(list(ODD_COLUMNS)),
            st.just("as it is"),
            options,
            st.lists(byte_damage(), min_size=1, max_size=2).map(tuple),
        ),
    )


def line_files(suffix: str, odd: list[bytes]) -> st.SearchStrategy[Lines]:
    places = st.lists(st.tuples(PERMILLE, st.sampled_from(odd)), max_size=3).map(tuple)
    return st.builds(
        Lines,
        st.just(suffix) if suffix == ".jsonl" else st.sampled_from([suffix, suffix, ".tsv"]),
        st.integers(0, len(CSV_HEADS) - 1),
        places,
        _few(2),
        st.sampled_from(["", "", "", ".gz", ".bz2", ".zst"]),
    )


# -- job files -------------------------------------------------------------------------------------

JOB = """\
corpus: corpus
out: run
stages:
  embed:
    model: model
    text_column: text
    carry: [year]
    unit_rows: 16
  index:
    kind: hnsw
    shards: 2
  pairs:
    threshold: 0.9
  cluster:
    keep: longest
    thresholds: [0.9, 0.95]
  apply:
  report:
gates:
  max_quarantined_share: 0.5
  min_recall: 0.5
price_per_hour: 1.2
"""
ODD_YAML = [
    "", "~", "- a", "&a [*a]", "*nowhere", "!!python/object/apply:os.mkdir [mark]", "{", "[",
    "[" * 999, "!!binary x", "2024-13-45", "2024-01-01", ".inf", ".nan", "0x1F", "1e400", "#",
    '"\\ud800"', "|", ">", "? [a]", "<<: *a", "\t", "%YAML 9.9", "---", "...", "!!set {a}", "yes",
    "[[[[]]]]", "{a: {b: {c: {d: 1}}}}", "!!int x", "!!float x", "!!null x", "!x y", "!!omap [a]",
    "9" * 5000, "x" * 5000, "!!timestamp 9999-99-99", "!!map [a]", "!!bool maybe", "!!str", "-",
    ": ", "{? {a: b} : c}", "{[a]: b}", "1:60:60", "0o9", "\0", "é", "'", "0b1",
]  # fmt: skip


@dataclass(frozen=True)
class JobFile:
    """A job file with odd lines. odd: line, and what stands behind its colon or in its place."""

    odd: tuple[tuple[int, bool, str], ...]
    changes: tuple[Bytes, ...]
    settings: tuple[str, ...]

    def data(self) -> bytes:
        lines = JOB.splitlines()
        for place, is_value, text in self.odd:
            number = len(lines) * place // 1000
            lines[number] = f"{lines[number].partition(':')[0]}: {text}" if is_value else text
        return _changed("\n".join([*lines, ""]).encode("utf-8", "surrogatepass"), self.changes)


def job_files() -> st.SearchStrategy[JobFile]:
    values = st.sampled_from(ODD_YAML) | json_values().map(lambda value: json.dumps(value))
    names = st.sampled_from(
        ["embed.model", "pairs.threshold", "out", "corpus", "gates.min_recall", "stages", "index.m",
         "cluster.keep", "", ".", "report", "pairs.band", "embed.carry", "a.b.c", "apply.x"]
    )  # fmt: skip
    settings = st.builds("{}={}".format, names, values.filter(lambda text: "\0" not in text))
    return st.builds(
        JobFile,
        st.lists(st.tuples(PERMILLE, st.booleans(), values), max_size=3).map(tuple),
        _few(1),
        st.lists(settings, max_size=1).map(tuple),
    )


# -- cases -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileCase:
    """A broken file of rows, and what is done with it."""

    command: str
    options: tuple[str, ...]
    file: Parquet | Lines


@dataclass(frozen=True)
class JobCase:
    """A broken job file."""

    file: JobFile
    is_planned: bool


@dataclass(frozen=True)
class FolderCase:
    """A folder some of whose files are broken, and what is done with it."""

    folder: str
    command: str
    damages: tuple[Damage, ...]

    def is_of_data(self, root: Path) -> bool:
        """Is nothing broken but files whose hashes are known?"""
        targets = [damage.target(root / self.folder) for damage in self.damages]
        return self.folder != "model" and all(path.suffix != ".json" for path in targets)


EMBED_OPTIONS = [
    (), (), (), ("--skip-corrupt",), ("--plan",), ("--id", "content"), ("--carry", "year"),
    ("--where", "year > 3"), ("--limit", "7"), ("--plan", "--distinct", "unit"),
    ("--plan", "--skip-corrupt", "--text", "{text} {answer}"), ("--id-column", "year"),
]  # fmt: skip
FILE_COMMANDS = [*["embed"] * 12, *["queries", "metadata", "protect", "labelled", "prepare"] * 2,
                 "dedup"]  # fmt: skip
FOLDER_COMMANDS = {
    "vectors": ["index", "pairs", "against", "threshold", "report", "path", "export", "update",
                "cluster", "apply"],
    "index": ["search", "search", "queries", "grow index", "report"],
    "cells": ["search", "queries", "grow cells"],
    "pairs": ["cluster", "threshold pairs", "report pairs", "grow pairs"],
    "clusters": ["apply", "report clusters", "grow clusters"],
    "applied": ["apply again"],
    # A model that loads is started on Ray Data by one of them alone: ten seconds each time.
    "model": ["embed model", *["plan model", "search model"] * 4, "rerank"],
}  # fmt: skip


def file_cases(files: st.SearchStrategy[Parquet | Lines]) -> st.SearchStrategy[FileCase]:
    def options(command: str) -> st.SearchStrategy[tuple[str, ...]]:
        return st.sampled_from(EMBED_OPTIONS) if command == "embed" else st.just(())

    def case(command: str) -> st.SearchStrategy[FileCase]:
        return st.builds(FileCase, st.just(command), options(command), files)

    return st.sampled_from(FILE_COMMANDS).flatmap(case)


def folder_cases(*folders: str) -> st.SearchStrategy[FolderCase]:
    def case(folder: str) -> st.SearchStrategy[FolderCase]:
        commands = st.sampled_from(FOLDER_COMMANDS[folder])
        damages = st.lists(damage(), min_size=1, max_size=2).map(tuple)
        return st.builds(FolderCase, st.just(folder), commands, damages)

    return st.sampled_from(folders).flatmap(case)


# What was wrong once.
KNOWN: dict[str, list[FileCase | JobCase | FolderCase]] = {
    "parquet": [
        # A page that ends a file before its time, unannounced.
        FileCase("embed", (), Parquet("plain", "as it is", 2, (Bytes("flip", 2, b"E\xa0"),))),
        FileCase(
            "labelled", (), Parquet("decimals", "as it is", 3, (Bytes("insert", 136, b"PK"),))
        ),
        FileCase("embed", ("--limit", "7"), Parquet("plain", "two of a name", 0, ())),
        FileCase("queries", (), Parquet("large ids", "as it is", 2, ())),
        FileCase("metadata", (), Parquet("years in lists", "as it is", 0, ())),
        FileCase("prepare", (), Parquet("plain", "no rows", 4, ())),
    ],
    "csv": [FileCase("labelled", (), Lines(".tsv", 4, (), ()))],
    # Its reader dies of a null in the first line.
    "jsonl": [FileCase("queries", (), Lines(".jsonl", 0, ((0, b"null\n"),), ()))],
    "yaml": [
        JobCase(JobFile((), (Bytes("write over", 0, b"\0"),), ()), True),
        JobCase(JobFile(((42, True, "!x y"),), (), ()), True),
        JobCase(JobFile((), (), ("index.m=!!bool maybe",)), True),
    ],
    "artifact": [
        # Names that lead elsewhere: of a part, and of a file to be tidied away.
        FolderCase("vectors", "pairs", (Damage(999, Json((450, 0, 0), "set", "../../elsewhere")),)),
        FolderCase(
            "applied", "apply again", (Damage(0, Json((800, 0, 0), "set", "../../elsewhere")),)
        ),
        FolderCase("vectors", "update", (Damage(0, "pickle"),)),
        FolderCase("vectors", "update", (Damage(300, Bytes("flip", 500, b"")),)),
        FolderCase("pairs", "grow pairs", (Damage(500, Bytes("flip", 500, b"")),)),
    ],
    "model": [],
}
# Each kind with its share of all cases.
KINDS: dict[str, tuple[float, st.SearchStrategy]] = {
    "parquet": (0.2, file_cases(parquet_files())),
    "csv": (0.12, file_cases(line_files(".csv", CSV_LINES))),
    "jsonl": (0.12, file_cases(line_files(".jsonl", JSON_LINES))),
    "yaml": (0.16, st.builds(JobCase, job_files(), st.booleans() | st.just(True))),
    "artifact": (0.25, folder_cases("vectors", "index", "cells", "pairs", "clusters", "applied")),
    "model": (0.15, folder_cases("model")),
}
