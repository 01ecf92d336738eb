"""Bad bytes and broken lines: what they cost, and what names them."""

import pickle

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from support.text_files import SMALL_BLOCK, read, written

from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.files import CorpusFile
from sbert_core.corpus.formats import write_parquet_copy
from sbert_core.corpus.reader import CorpusReader, IdKind
from sbert_core.storage import LocalStorage
from sbert_core.text import invalid_reason


def rows_read(folder, name, data=None, **changes):
    if data is not None:
        written(folder, name, data)
    fields = dict(root=str(folder), template="{text}", id_kind=IdKind.COLUMN, id_column="id",
                  carry={"note": "note"}, where=None, partition_types={}, staged={})  # fmt: skip
    if not name.endswith("parquet"):
        place = LocalStorage(folder), CorpusFile(name, 0, "")
        write_parquet_copy(*place, ["id", "text", "note"], ["id", "text"], folder / "copy.parquet")
        fields |= dict(staging=str(folder), staged={name: "copy.parquet"})
    return CorpusReader(**(fields | changes)).read(name, 0, 4)


CELLS = [
    (b"a", b"one", b"x"),
    (b"\xffb", b"two", b"x"),
    (b"c", b"three", b"\xfe"),
    (b"d", b"f", b"y"),
]


def bad_parquet(folder):
    columns = [
        pa.array(column, pa.binary()).view(pa.string()) for column in zip(*CELLS, strict=True)
    ]
    pq.write_table(pa.table(columns, ["id", "text", "note"]), folder / "x.parquet")


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl", "x.parquet"])
def test_bad_byte_in_an_id_or_a_carried_column_costs_its_row(name, tmp_path):
    data = None
    if name == "x.parquet":
        bad_parquet(tmp_path)
    elif name == "x.jsonl":
        data = b"\n".join(b'{"id": "%s", "text": "%s", "note": "%s"}' % row for row in CELLS)
    else:
        mark = b"," if name == "x.csv" else b"\t"
        data = b"\n".join(mark.join(row) for row in [(b"id", b"text", b"note"), *CELLS])
    rows = rows_read(tmp_path, name, data)
    reasons = [invalid_reason(text) for text in rows.texts]
    assert reasons[0] is None and reasons[3] is None
    assert "column 'id'" in reasons[1] and "column 'note'" in reasons[2]
    rows.ids.validate(full=True)
    assert rows.ids.to_pylist()[::2] == ["a", "c"] and rows.ids[1].as_py().endswith("b")


def test_bad_byte_in_a_carried_dictionary_costs_the_rows_that_have_it(tmp_path):
    notes = pa.array([b"x", b"\xff", b"x", b"\xff"], pa.binary()).view(pa.string())
    columns = {"id": [1, 2, 3, 4], "text": list("abcd"), "note": notes.dictionary_encode()}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    rows = rows_read(tmp_path, "x.parquet")
    assert [invalid_reason(text) is None for text in rows.texts] == [True, False, True, False]


def test_bad_byte_inside_a_carried_list_costs_its_row(tmp_path):
    data = (
        b'{"id": 1, "text": "a", "note": ["x", "\\ud800"]}\n{"id": 2, "text": "b", "note": ["y"]}\n'
    )
    rows = rows_read(tmp_path, "x.jsonl", data)
    assert [invalid_reason(text) is None for text in rows.texts] == [False, True]
    assert rows.carried["note"].type == pa.list_(pa.string())


def test_lone_surrogate_in_json_lines_costs_its_row(tmp_path):
    data = b"\n".join(
        b'{"id": %d, "text": "%s", "note": ""}' % (n, text)
        for n, text in enumerate([b"fine", b"the \\ud800", b"\\ude00 x", b"\\ud83d\\ude00"])
    )
    rows = rows_read(tmp_path, "x.jsonl", data)
    assert [invalid_reason(text) is None for text in rows.texts] == [True, False, False, True]
    assert rows.texts[3] == "\U0001f600" and rows.ids.to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "line",
    [b"[1]", b'"text"', b'{"a": ', b'{"a": 1}{"a": 2}', b'{"a": 1, "a": 2}', b"[" * 5000,
     b"{'a': 1}", b'{"a": ' + b"9" * 5000 + b"}", b'{"\\ud800": 1}', b'{"a": "\x01"}'],
)  # fmt: skip
def test_line_that_is_no_json_object_names_file_and_line(line, tmp_path):
    with pytest.raises(CorruptFile) as caught:
        read(tmp_path, "x.jsonl", b'{"a": 1}\n\n' + line + b'\n{"a": 1}\n', block=SMALL_BLOCK)
    assert (caught.value.path, caught.value.line) == ("x.jsonl", 3)


def test_header_that_is_no_utf8_names_the_file(tmp_path):
    with pytest.raises(CorruptFile) as caught:
        read(tmp_path, "x.csv", b"id,t\xffxt\n1,2\n")
    assert caught.value.path == "x.csv"


def test_corrupt_file_that_was_pickled_has_its_fields():
    error = CorruptFile("s3://bucket/in", "a/b.csv", "a reason", 7)
    found = pickle.loads(pickle.dumps(error))
    assert (found.root, found.path, found.reason, found.line) == error.args
    assert str(found) == str(error)
