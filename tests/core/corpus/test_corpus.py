"""Files, conditions, rows and units of a corpus."""

import gzip
import json
import pickle
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_core.corpus.drop_rows import write_without_rows
from sbert_core.corpus.errors import CorruptFile, EmptyCorpus, InvalidCondition
from sbert_core.corpus.files import CorpusFile, find_corpus
from sbert_core.corpus.formats import write_parquet_copy
from sbert_core.corpus.parquet import decode_texts, read_footer, render_texts
from sbert_core.corpus.reader import CorpusReader, IdKind
from sbert_core.corpus.row_filter import RowFilter
from sbert_core.corpus.source import CorpusSource, SourceFile
from sbert_core.corpus.text_lookup import TextLookup
from sbert_core.corpus.units import MAX_ROWS, rows_per_unit, unit_ranges
from sbert_core.storage import LocalStorage, UnsupportedStore, storage_at


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def paths(place) -> list[str]:
    return [file.path for file in find_corpus(str(place)).files]


def test_folder_lists_data_files_by_path_and_leaves_out_the_rest(tmp_path):
    touch(tmp_path, "b.parquet", "a/c.csv.gz", "a/b.jsonl", "_x/d.parquet", ".h.parquet", "e.md")
    assert paths(tmp_path) == ["a/b.jsonl", "a/c.csv.gz", "b.parquet"]
    assert paths(tmp_path / "b.parquet") == ["b.parquet"]


def test_globs_stay_within_folders_unless_doubled(tmp_path):
    touch(tmp_path, "x1.parquet", "x2.parquet", "y1.parquet", "d/x1.parquet", "d/e/x3.parquet")
    assert paths(f"{tmp_path}/x*.parquet") == ["x1.parquet", "x2.parquet"]
    assert paths(f"{tmp_path}/**/x?.parquet") == [
        "d/e/x3.parquet",
        "d/x1.parquet",
        "x1.parquet",
        "x2.parquet",
    ]
    assert paths(f"{tmp_path}/[xy]1.parquet") == ["x1.parquet", "y1.parquet"]


def test_missing_and_empty_corpora_say_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        find_corpus(str(tmp_path / "nowhere"))
    with pytest.raises(EmptyCorpus) as caught:
        find_corpus(str(tmp_path))
    assert caught.value.place == str(tmp_path)
    with pytest.raises(UnsupportedStore) as refused:
        find_corpus("gs://bucket/x")
    assert refused.value.scheme == "gs"


def test_hive_partitions_are_columns(tmp_path):
    file = CorpusFile("year=2024/lang=de/x.parquet", 0, "")
    assert file.partitions == {"year": "2024", "lang": "de"}


ROWS = pa.table(
    {
        "n": [1, 2, 3, None],
        "s": ["a", "b", None, "d"],
        "f": [0.5, 1.5, 2.5, 3.5],
    }
)


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("n == 2", [2]),
        ("n >= 2 and f < 3", [2, 3]),
        ("not n == 2", [1, 3]),
        ("s in ('a', 'd') or n == 2", [1, 2, None]),
        ("s not in ['a']", [2, None]),
        ("s is None", [3]),
        ("n is not None and s is not None", [1, 2]),
        ("1 < n <= 3", [2, 3]),
        ("n > -5", [1, 2, 3]),
    ],
)
def test_conditions_keep_the_rows_they_name(where, kept):
    assert ROWS.filter(RowFilter(where).expression())["n"].to_pylist() == kept


@pytest.mark.parametrize(
    "where", ["n ==", "__import__('os')", "n + 1 == 2", "s.x == 1", "lambda: 1"]
)
def test_conditions_that_are_none_are_refused(where):
    with pytest.raises(InvalidCondition) as caught:
        RowFilter(where)
    assert caught.value.text == where


def test_condition_names_its_columns():
    assert RowFilter("b == 1 and a in (1, 2)").columns == ("a", "b")


def test_bad_bytes_cost_one_value():
    raw = pa.array([b"fine", b"\xff\xfe", None, "\u00e9".encode()], pa.binary())
    strings = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    for column in (raw, strings, strings.cast(pa.binary()).cast(pa.large_binary())):
        assert decode_texts(column) == ["fine", b"\xff\xfe", None, "\u00e9"]
    assert decode_texts(pa.array(["a", "b", "a"]).dictionary_encode()) == ["a", "b", "a"]


def test_template_joins_columns_and_forgives_nulls():
    columns = {
        "t": pa.array(["A", None, None, "D"]),
        "b": pa.array(["x", "y", None, b"\xff"], pa.binary()),
    }
    assert render_texts(columns, "{t}: {b}") == ["A: x", ": y", None, b"\xff"]
    assert render_texts(columns, "{t}") == ["A", None, None, "D"]
    assert render_texts(columns, "{b} and {b}") == ["x and x", "y and y", None, b"\xff"]


def reading(folder, **changes) -> CorpusReader:
    fields = dict(
        root=str(folder),
        template="{text}",
        id_kind=IdKind.COLUMN,
        id_column="id",
        carry={},
        where=None,
        partition_types={},
        staged={},
    )
    return CorpusReader(**{**fields, **changes})


@pytest.mark.parametrize("group_rows", [7, 100, 1000])
@pytest.mark.parametrize(("first", "num_rows"), [(0, 100), (13, 1), (90, 10), (5, 60), (99, 1)])
def test_row_ranges_are_exact_for_any_row_groups(group_rows, first, num_rows, tmp_path):
    table = pa.table({"id": range(100), "text": [f"t{i}" for i in range(100)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=group_rows)
    rows = reading(tmp_path).read("x.parquet", first, num_rows)
    want = list(range(first, first + num_rows))
    assert rows.row.tolist() == rows.ids.to_pylist() == want
    assert rows.texts == [f"t{i}" for i in want]


def test_condition_keeps_raw_row_numbers(tmp_path):
    (tmp_path / "k=3").mkdir()
    table = pa.table({"text": [f"t{i}" for i in range(50)], "c": [i % 5 for i in range(50)]})
    pq.write_table(table, tmp_path / "k=3/x.parquet")
    rows = reading(
        tmp_path,
        id_kind=IdKind.POSITION,
        id_column=None,
        carry={"k": "k", "c": "c"},
        where=RowFilter("c == 2 and k == 3"),
        partition_types={"k": "int64"},
    ).read("k=3/x.parquet", 10, 30)
    assert rows.row.tolist() == [12, 17, 22, 27, 32, 37]
    assert rows.ids.to_pylist()[0] == "k=3/x.parquet#12"
    assert rows.carried["k"].to_pylist() == [3] * 6
    assert rows.carried["c"].to_pylist() == [2] * 6


CSV = 'id,text,n\n007,"two\nlines",1\n008,plain,2\n'
JSONL = "\n".join(
    json.dumps({"id": i, "text": t, "n": n})
    for i, t, n in [("007", "two\nlines", 1), ("008", "plain", 2)]
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.csv", CSV.encode()),
        ("x.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("x.jsonl", JSONL.encode()),
        ("x.jsonl.gz", gzip.compress(JSONL.encode(), mtime=0)),
    ],
)
def test_csv_and_json_lines_become_parquet_with_text_ids(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    copy = tmp_path / "copy.parquet"
    write_parquet_copy(LocalStorage(tmp_path), CorpusFile(name, 0, ""), None, ["text", "id"], copy)
    table = pq.read_table(copy)
    assert table.to_pydict() == {"id": ["007", "008"], "text": ["two\nlines", "plain"], "n": [1, 2]}


def test_a_quote_in_a_tsv_is_a_character(tmp_path):
    (tmp_path / "x.tsv").write_text('id\ttext\n1\t"half open\n2\ta "word"\n3\tend"\n')
    copy = tmp_path / "copy.parquet"
    write_parquet_copy(LocalStorage(tmp_path), CorpusFile("x.tsv", 0, ""), None, ["text"], copy)
    assert pq.read_table(copy)["text"].to_pylist() == ['"half open', 'a "word"', 'end"']


def test_broken_files_name_themselves(tmp_path):
    storage = LocalStorage(tmp_path)
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(CorruptFile) as caught:
        read_footer(storage, "x.parquet")
    assert (caught.value.root, caught.value.path) == (str(tmp_path), "x.parquet")
    (tmp_path / "x.jsonl").write_bytes(b'{"a": 1}\n{"a": ')
    with pytest.raises(CorruptFile) as caught:
        write_parquet_copy(storage, CorpusFile("x.jsonl", 0, ""), None, None, tmp_path / "copy")
    assert (caught.value.path, caught.value.line) == ("x.jsonl", 2)
    copied = pickle.loads(pickle.dumps(caught.value))  # as it comes from a task
    assert (type(copied), str(copied)) == (CorruptFile, str(caught.value))
    table = pa.table({"id": range(5000), "text": [f"text number {i}" for i in range(5000)]})
    pq.write_table(table, tmp_path / "y.parquet", compression="zstd")
    data = bytearray((tmp_path / "y.parquet").read_bytes())
    data[200:20000] = b"\x00" * 19800
    (tmp_path / "y.parquet").write_bytes(data)
    with pytest.raises(CorruptFile) as caught:
        reading(tmp_path).read("y.parquet", 0, 5000)
    assert caught.value.path == "y.parquet"


def test_units_cover_every_row_once_and_depend_on_the_file_alone():
    assert rows_per_unit(100, 50.0) == 1024
    assert rows_per_unit(1_000_000, 50.0) == 16_384
    assert rows_per_unit(10**9, 50.0) == MAX_ROWS
    assert rows_per_unit(10**9, 100_000.0) == 1342  # 128 MB of text
    assert rows_per_unit(10**6, 50.0, wanted=1000) == 1000
    rows = [
        row for _, first, n in unit_ranges("x", 10_001, 4096) for row in range(first, first + n)
    ]
    assert rows == list(range(10_001))
    assert unit_ranges("x", 0, 4096) == []


def test_null_comparisons_drop_rows_as_in_sql():
    assert ROWS.filter(RowFilter("n != 1").expression())["n"].to_pylist() == [2, 3]


def test_rows_are_left_out_of_a_csv_with_a_very_long_value(tmp_path):
    long = "x" * 200_000
    (tmp_path / "a.csv").write_text(f'id,text\n1,"{long}"\n2,"two\nlines"\n3,last\n')
    [file] = find_corpus(str(tmp_path)).files
    storage = storage_at(tmp_path)
    assert write_without_rows(storage, file, np.array([1]), 3, tmp_path / "out") == 2
    assert (tmp_path / "out").read_text() == f'id,text\n1,"{long}"\n3,last\n'
    with pytest.raises(CorruptFile):
        write_without_rows(storage, file, np.array([1]), 4, tmp_path / "out")


def test_texts_of_folders_and_of_windows(tmp_path):
    (tmp_path / "lang=en").mkdir()
    pq.write_table(pa.table({"text": ["some words", "others"]}), tmp_path / "lang=en" / "a.parquet")
    corpus = find_corpus(str(tmp_path))
    files = tuple(SourceFile(**asdict(file)) for file in corpus.files)
    source = CorpusSource(corpus=corpus.root, text="{lang}: {text}", files=files)
    rows = pa.table({"file": ["lang=en/a.parquet"] * 2, "row": [1, 0]})
    assert TextLookup(source).for_rows(rows) == ["en: others", "en: some words"]
    windows = rows.append_column("start_char", [[4, 0]]).append_column("end_char", [[7, 2]])
    assert TextLookup(source).for_rows(windows) == ["oth", "en"]
    gone = TextLookup(source)
    assert gone.for_rows(pa.table({"file": ["none"], "row": [0]})) == [None] and gone.notes
