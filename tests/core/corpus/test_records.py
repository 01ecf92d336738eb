"""Records of text files, against Arrow, and rows left out of them."""

import gzip
import io

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.text_files import read, written

from sbert_core.corpus import records
from sbert_core.corpus.drop_rows import write_without_rows
from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.formats import read_table
from sbert_core.corpus.records import RecordScanner, count_rows
from sbert_core.storage import LocalStorage


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


odd_bytes = st.lists(
    st.sampled_from([b'"', b'"', b",", b"\t", b"\r", b"\n", b"a", b" "]), max_size=20
)
odd_starts = st.sampled_from([b"", records.BOM])


def arrow_rows(data: bytes, kind: Format) -> int | None:
    """Records as Arrow counts them, in files of one column; None where it sees none."""
    options = pa.csv.ParseOptions(delimiter="\x1f", newlines_in_values=True)
    if kind is Format.TSV:
        options = pa.csv.ParseOptions(delimiter="\x1f", quote_char=False)
    try:
        table = pa.csv.read_csv(
            io.BytesIO(data),
            parse_options=options,
            read_options=pa.csv.ReadOptions(column_names=["x"]),
            convert_options=pa.csv.ConvertOptions(column_types={"x": pa.binary()}),
        )
    except pa.ArrowInvalid:
        return None
    return table.num_rows


@settings(max_examples=300, deadline=None)
@given(odd_starts, odd_bytes, st.sampled_from([Format.CSV, Format.TSV]), st.integers(1, 5))
def test_scanner_any_bytes_in_any_blocks_finds_the_records_of_arrow(start, pieces, kind, step):
    # No delimiter: a quote at the start of a line is the one that counts.
    data = start + b"".join(pieces).replace(b",", b"").replace(b"\t", b"")
    scanner = RecordScanner(kind)
    for place in range(0, len(data), step):
        scanner.scan(data[place : place + step])
    scanner.finish()
    want = arrow_rows(data, kind)
    if want is not None and scanner.open_quote_line is None:
        assert scanner.num_records == want


random_files = st.one_of(
    st.tuples(st.sampled_from(["x.csv", "x.tsv"]), odd_starts, odd_bytes.map(b"".join)),
    st.tuples(
        st.just("x.jsonl"),
        odd_starts,
        st.lists(
            st.sampled_from(
                [b'{"a": 1}\n', b'{"a": "\xc3\xa4"}\r\n', b"\n", b"  \n", b"null\n", b"{}", b"\r",
                 b"\t\r\n", b'{"a":\n', b'{"a": 2}{"a": 3}\n', b'{"a": 4}\r', b'{"b": 5}']
            ),
            max_size=8,
        ).map(b"".join),
    ),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(random_files, st.data())
@example(("x.csv", b"", b'a\r"b\r\n"\r\n\r\nc\r'), None)
@example(("x.jsonl", b"", b'{"a": 1}\n   \n{"a": 2}\n'), None)
def test_rows_left_out_of_any_file_that_is_read_leave_the_others(folder, file, data):
    name, start, body = file
    storage, source = written(folder, name, start + body)
    try:
        before = read_table(storage, source)
    except CorruptFile:
        assume(False)
    num_rows = count_rows(storage, source)
    assert before.num_columns == 0 or before.num_rows == num_rows
    rows = list(range(num_rows))
    gone = data.draw(st.lists(st.sampled_from(rows), unique=True)) if data and rows else rows[:1]
    path = folder / f"out-{name}"
    write_without_rows(storage, source, np.array(gone, np.int64), num_rows, path)
    after = read_table(storage, CorpusFile(path.name, 0, ""))
    left = [row for row in rows if row not in gone]
    assert count_rows(storage, CorpusFile(path.name, 0, "")) == len(left)
    want = before.take(pa.array(left, pa.int64())).to_pylist()
    assert not after.num_columns or [nonnull(row) for row in after.to_pylist()] == [
        nonnull(row) for row in want
    ]


def nonnull(row: dict) -> dict:
    """Without keys that no row of a smaller file may have; numbers that became text as such."""
    return {name: str(value) for name, value in row.items() if value is not None}


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
@pytest.mark.parametrize(
    "first", ["1,fine\n2,'two\nlines'\n".replace("'", '"'), "", 'a,"b"\r\n' * 9]
)
def test_csv_that_ends_inside_a_quote_is_refused_with_the_line(name, first, tmp_path):
    data = f'id,text\n{first}7,"the hot word\n8,other\n9,more'.encode()
    line = data[: data.index(b'7,"')].count(b"\n") + 1
    with pytest.raises(CorruptFile) as caught:
        read(tmp_path, name, gzip.compress(data) if name.endswith("gz") else data)
    assert (caught.value.path, caught.value.line) == (name, line)


def test_csv_of_many_columns_that_ends_inside_a_quote_names_the_quote_not_the_columns(tmp_path):
    with pytest.raises(CorruptFile) as caught:
        read(tmp_path, "x.csv", b'id,text\n1,a\n"2,b\n3,c\n')
    assert caught.value.line == 3


@pytest.mark.parametrize(
    ("name", "data", "columns"),
    [
        ("x.csv", b"id,text\n", ["id", "text"]),
        ("x.csv", b"id,text", ["id", "text"]),
        ("x.tsv", b"\r\nid\ttext\r\n\r\n", ["id", "text"]),
        ("x.csv", b"", []),
        ("x.csv", b"\n\n", []),
        ("x.jsonl", b"", []),
        ("x.jsonl", b" \n", []),
    ],
)
def test_text_file_without_rows_is_a_table_without_rows(name, data, columns, tmp_path):
    table = read(tmp_path, name, data)
    assert (table.num_rows, table.column_names) == (0, columns)
    assert count_rows(LocalStorage(tmp_path), CorpusFile(name, 0, "")) == 0
