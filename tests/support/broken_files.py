"""Files of rows and job files as disks, editors, other tools and bad intentions leave them."""

import bz2
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from support.damage import PERMILLE, Bytes, byte_damage, json_values
from support.encoders import WORDS

ROWS = 24
TEXTS = [f"{WORDS[n]} {WORDS[2 * n]} {WORDS[-n]} {n % 20}" for n in range(ROWS)]


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
