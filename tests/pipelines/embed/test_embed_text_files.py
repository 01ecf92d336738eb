"""CSV and JSON lines through the whole job: staged when they are read, left out when corrupt."""

import csv
import gzip
import io
import json

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.embedding import (
    embed,
    published_bytes,
    quarantine_of,
    rows_of,
    sentences,
    table_of,
    write_corpus,
)

from pipelines.artifacts.reader import Artifact
from sbert_core.corpus.errors import CorruptFile

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

TEXTS = sentences(24)
# Each is the tail, the head or a part of another.
NAMES = ["a.parquet", "sub/a.parquet", "xsub/a.parquet", "aa.parquet", "a.parquet x/a.parquet"]


def break_pages(path):
    """The footer is whole, the pages are not."""
    data = bytearray(path.read_bytes())
    data[10:60] = bytes(50)
    path.write_bytes(data)


@pytest.mark.parametrize("broken", [NAMES[1:3], [NAMES[0], NAMES[4]]])
def test_corrupt_files_among_alike_names_are_left_out_alone(
    broken, ray_address, bert_folder, tmp_path
):
    files = {name: rows_of(TEXTS[:3], first=3 * n) for n, name in enumerate(NAMES)}
    corpus = write_corpus(tmp_path / "in", files, compression="none", use_dictionary=False)
    for name in broken:
        break_pages(corpus / name)
    options = {"address": ray_address, "skip_corrupt": True}
    embed(corpus, tmp_path / "out", bert_folder, **options)
    assert {row["file"] for row in quarantine_of(tmp_path / "out")} == set(broken)
    found = set(table_of(tmp_path / "out")["file"].to_pylist())
    assert found == set(NAMES) - set(broken)
    # The same where rows are read already to find the limit.
    limited = options | {"where": "id != 'none'", "limit": 100}
    embed(corpus, tmp_path / "limited", bert_folder, **limited)
    assert set(table_of(tmp_path / "limited")["file"].to_pylist()) == found


def write_text_files(folder):
    """A CSV, a packed CSV and JSON lines."""
    folder.mkdir()
    rows = [{"id": f"r{n}", "text": text, "n": n} for n, text in enumerate(TEXTS)]
    sink = io.StringIO()
    writer = csv.DictWriter(sink, ["id", "text", "n"])
    writer.writeheader()
    writer.writerows(rows[:8])
    (folder / "a.csv").write_text(sink.getvalue(), newline="")
    (folder / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[8:16]))
    sink.seek(0)
    sink.truncate()
    writer.writeheader()
    writer.writerows(rows[16:])
    (folder / "c.csv.gz").write_bytes(gzip.compress(sink.getvalue().encode()))
    return folder


def test_text_files_limited_and_then_whole_equal_a_run_from_scratch(
    ray_address, bert_folder, tmp_path
):
    corpus = write_text_files(tmp_path / "in")
    options = {"address": ray_address, "unit_rows": 4}
    embed(corpus, tmp_path / "out", bert_folder, limit=5, **options)
    embed(corpus, tmp_path / "out", bert_folder, **options)
    embed(corpus, tmp_path / "scratch", bert_folder, **options)
    assert published_bytes(tmp_path / "out") == published_bytes(tmp_path / "scratch")


def test_bad_rows_and_files_of_text_formats_cost_what_is_bad_alone(
    ray_address, bert_folder, tmp_path
):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "bytes.csv").write_bytes(
        b"id,text,note\na0,the word,x\na1,a word,\xff\na\xfe2,some,x\na3,\xff,y\n"
    )
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "header.csv").write_bytes(b"id,text,note")
    (folder / "lines.jsonl").write_bytes(
        b'{"id": "2020-01-01", "text": "the \\ud800", "note": "a"}\n   \n'
        b'{"id": "2020-01-02", "text": "how many", "note": "2020-01-01"}\n'
    )
    values = [[b"p0", b"p1"], [b"hot", b"cold"], [b"\xff", b"fine"]]
    columns = [pa.array(value, pa.binary()).view(pa.string()) for value in values]
    pq.write_table(pa.table(columns, ["id", "text", "note"]), folder / "p.parquet")
    quoted = b'id,text,note\nq0,word,x\nq1,"the hot word,x\nq2,other,x\n'
    options = {"address": ray_address, "carry": ("note",)}
    for name, data in [("q.csv", quoted), ("q.csv.gz", gzip.compress(quoted))]:
        (folder / name).write_bytes(data)
        with pytest.raises(CorruptFile) as caught:
            embed(folder, tmp_path / "out", bert_folder, **options)
        assert (caught.value.path, caught.value.line) == ("q.csv", 3)
    embed(folder, tmp_path / "out", bert_folder, skip_corrupt=True, **options)

    assert set(table_of(tmp_path / "out")["id"].to_pylist()) == {"a0", "2020-01-02", "p1"}
    bad = quarantine_of(tmp_path / "out")
    places = {(row["file"], row["row"]): row["reason"] for row in bad}
    rows = {("bytes.csv", row) for row in (1, 2, 3)} | {("lines.jsonl", 0), ("p.parquet", 0)}
    assert set(places) == rows | {("q.csv", None), ("q.csv.gz", None)}
    assert "'note'" in places["bytes.csv", 1] and "'id'" in places["bytes.csv", 2]
    assert "'note'" in places["p.parquet", 0]
    manifest = Artifact.open(str(tmp_path / "out")).manifest
    for file in [*manifest.files, *manifest.quarantine]:
        path = tmp_path / "out" / file.path
        assert polars.read_parquet(path).height == file.rows
        assert len(duckdb.sql(f"select * from '{path}'").fetchall()) == file.rows


def test_files_without_rows_alone_are_an_artifact_without_rows_that_grows(
    ray_address, bert_folder, tmp_path
):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id,text,n\n")
    (folder / "b.jsonl").write_text("")
    options = {"address": ray_address, "carry": ("n",)}
    assert embed(folder, tmp_path / "out", bert_folder, **options).rows == 0
    (folder / "c.csv").write_text("id,text,n\nx,the word,1\n")
    embed(folder, tmp_path / "out", bert_folder, **options)
    embed(folder, tmp_path / "scratch", bert_folder, **options)
    assert published_bytes(tmp_path / "out") == published_bytes(tmp_path / "scratch")
    assert table_of(tmp_path / "out")["n"].to_pylist() == [1]
