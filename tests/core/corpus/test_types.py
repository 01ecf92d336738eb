"""Types of columns of text files, against Arrow, and of formats against each other."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.text_files import SMALL_BLOCK, lines_of, read

from sbert_core.corpus.files import CorpusFile
from sbert_core.corpus.formats import read_table
from sbert_core.storage import LocalStorage

tried = settings(max_examples=60, deadline=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


cells = st.sampled_from(
    ["", "", "1", "0", "-7", " 5 ", "1.5", "nan", "true", "FALSE", "2020-01-01", "2020-01-01 10:00",
     "2020-01-01T10:00:00.5", "2020-01-01T10:00:00Z", "10:00:00", "word", "two\nlines", 'a "b"',
     ",", "99999999999999999999", "0x1f", "+5"]
)  # fmt: skip


@pytest.mark.slow
@tried
@given(st.lists(cells, min_size=1, max_size=40))
@example(["1"] * 20 + ["1.5"])
@example([""] * 40 + ["a note"])
@example(["1"] * 20 + ["0"] * 20 + ["true"])
def test_csv_column_in_small_blocks_has_the_type_arrow_finds_in_one(folder, values):
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\n").writerows([["n", "x"], *([v, "y"] for v in values)])
    data = sink.getvalue().encode()
    want = pa.csv.read_csv(
        io.BytesIO(data),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(strings_can_be_null=True, null_values=[""]),
    )
    pq.write_table(want, folder / "want.parquet")  # has no seconds, but thousandths
    want = pq.read_table(folder / "want.parquet")
    found = read(folder, "x.csv", data, ["n"], [], block=SMALL_BLOCK)
    assert found["n"].combine_chunks().equals(want["n"].combine_chunks()) or (
        found["n"].type == want["n"].type and str(found["n"]) == str(want["n"])  # nan
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2),
    max_leaves=4,
)  # fmt: skip


@tried
@given(st.lists(st.dictionaries(st.sampled_from(["x", "y"]), json_values), max_size=12))
def test_json_lines_in_small_blocks_equal_those_in_one(folder, rows):
    data = lines_of(rows)
    small = read(folder, "x.jsonl", data, block=SMALL_BLOCK)
    assert small.equals(read(folder, "x.jsonl", data))
    for name in small.column_names:
        values = [row.get(name) for row in rows]
        found = small[name].to_pylist()
        assert [value is None for value in found] == [value is None for value in values]
        if small.schema.field(name).type == pa.string():
            pairs = zip(found, values, strict=True)
            texts = [v if isinstance(v, str | None) else json.loads(text) for text, v in pairs]
            assert texts == values


@pytest.mark.slow
@tried
@given(st.lists(st.dictionaries(st.sampled_from(["x", "y"]), json_values), min_size=1, max_size=12))
@example([{"x": "2020-01-01"}] * 20)
@example([{"x": "2020-01-01"}] * 20 + [{"x": "then"}])
def test_json_lines_that_arrow_reads_have_the_types_it_finds(folder, rows):
    data = lines_of(rows)
    try:
        want = pa.json.read_json(io.BytesIO(data))
    except pa.ArrowInvalid:
        assume(False)  # kinds that do not go together
    nested = [field.type for field in want.schema if pa.types.is_nested(field.type)]
    assume("timestamp" not in str(nested))  # there dates stay text
    try:
        want.validate(full=True)  # Arrow 26 breaks on [null, []]
        pq.write_table(want, folder / "want.parquet")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        assume(False)
    found = read(folder, "x.jsonl", data, text_columns=[], block=SMALL_BLOCK)
    assert found.equals(pq.read_table(folder / "want.parquet"))


def test_json_ids_that_look_like_dates_stay_text(tmp_path):
    data = lines_of([{"id": "2020-01-01"}, {"id": "2020-01-02"}])
    table = read(tmp_path, "x.jsonl", data, ["id"], ["id"])
    assert table["id"].to_pylist() == ["2020-01-01", "2020-01-02"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.csv", b"id,text,n\n" + b"1,word,\n" * 40 + b"2,word,a note\n"),
        ("x.csv", b"id,text,n\n" + b"1,word,7\n" * 40 + b"2,word,7.5\n"),
        (
            "x.jsonl",
            lines_of([{"id": 1, "text": "word"}] * 40 + [{"id": 2, "text": "word", "n": 1}]),
        ),
        ("x.jsonl", lines_of([{"id": 1, "text": "word", "n": 1}] * 40 + [{"text": "w", "n": "b"}])),
    ],
)
def test_column_that_changes_late_is_read_and_costs_nothing_unused(name, data, tmp_path):
    whole = read(tmp_path, name, data, text_columns=["id", "text"])
    small = read(tmp_path, name, data, text_columns=["id", "text"], block=SMALL_BLOCK)
    assert small.equals(whole) and whole["n"].null_count < 41
    used = read(tmp_path, name, data, ["text"], block=SMALL_BLOCK)
    assert used.column_names == ["text"] and used.num_rows == 41


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1, max_size=12)


@pytest.mark.slow
@tried
@given(st.lists(st.tuples(texts, texts, st.integers(-(2**62), 2**62) | st.none()), max_size=12))
def test_table_written_as_csv_json_lines_and_parquet_reads_back_equal(folder, rows):
    assume(not any(text.startswith("\ufeff") for row in rows[:1] for text in row[:1]))
    names = ["id", "text", "n"]
    sink = io.StringIO()
    csv.writer(sink).writerows([names, *rows])
    table = pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * 3, names)
    pq.write_table(table, folder / "x.parquet")
    parquet = read_table(LocalStorage(folder), CorpusFile("x.parquet", 0, ""))
    data = lines_of([dict(zip(names, row, strict=True)) for row in rows])
    for block in (None, 512):
        found = read(folder, "x.csv", sink.getvalue().encode(), names, ["id", "text"], block)
        assert found.to_pydict() == parquet.to_pydict()
        assert read(folder, "x.jsonl", data, block=block).to_pylist() == parquet.to_pylist()
