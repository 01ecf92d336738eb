"""The task of `sbert apply`, called as a plain function: one file in every format."""

import gzip
import hashlib
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_core.corpus.files import find_corpus
from workers.apply import ApplyJob, RemovedRows, apply_to_file, read_note

IDS = [f"row-{n}" for n in range(7)]
REMOVED = [4, 1]
NO_IDS = pa.array([], pa.string())


def write_corpus(path):
    """Seven rows with ids; the lines of formats that have lines."""
    if path.suffix == ".parquet":
        table = pa.table({"id": IDS, "n": range(7)}).replace_schema_metadata({"made": "by hand"})
        pq.write_table(table, path, row_group_size=3, compression="gzip")
        return []
    if path.suffix == ".csv":
        lines = ["id,text\r\n", *(f'{name},"a, ""{n}""\nb"\r\n' for n, name in enumerate(IDS))]
    elif path.suffix == ".tsv":
        lines = ["id\ttext\n", *(f"{name}\t{n}\n" for n, name in enumerate(IDS))]
    else:
        lines = [json.dumps({"id": name, "n": n}) + "\n" for n, name in enumerate(IDS)]
    data = "".join(lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return lines


def read_data(path):
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


@pytest.fixture
def job(tmp_path):
    (tmp_path / "in").mkdir()
    return ApplyJob(
        corpus=str(tmp_path / "in"),
        out=str(tmp_path / "out"),
        data="data/1",
        work="_work/1",
        id_column=None,
    )


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.tsv", "a.jsonl", "a.jsonl.gz"])
def test_apply_to_file_leaves_out_the_removed_rows_byte_for_byte(name, by_id, job, tmp_path):
    lines = write_corpus(tmp_path / "in" / name)
    [file] = find_corpus(str(tmp_path / "in")).files
    removed = RemovedRows(NO_IDS, {name: np.array(REMOVED)})
    if by_id:
        job = replace(job, id_column="id")
        removed = RemovedRows(pa.array([IDS[n] for n in REMOVED] + ["elsewhere"]), {})
    made = apply_to_file(job, file, removed, None)
    target = tmp_path / "out" / made.path
    assert made.path == f"data/1/{name}"
    assert (made.rows, made.source_count("rows"), made.source_count("removed")) == (5, 7, 2)
    assert hashlib.sha256(target.read_bytes()).hexdigest() == made.sha256
    assert target.stat().st_size == made.bytes
    if lines:
        first = len(lines) - len(IDS)  # behind a header
        kept = [line for n, line in enumerate(lines) if n - first not in REMOVED]
        assert read_data(target) == "".join(kept)
    else:
        whole = pq.read_table(tmp_path / "in" / name)
        assert pq.read_table(target).equals(whole.take([0, 2, 3, 5, 6]), check_metadata=True)


def test_apply_to_file_without_removed_rows_keeps_all(job, tmp_path):
    lines = write_corpus(tmp_path / "in" / "a.csv")
    [file] = find_corpus(str(tmp_path / "in")).files
    made = apply_to_file(job, file, RemovedRows(NO_IDS, {"b.csv": np.array([0])}), None)
    assert (made.rows, made.source_count("removed")) == (7, 0)
    assert read_data(tmp_path / "out" / made.path) == "".join(lines)


def test_apply_to_file_made_before_is_linked_unless_it_differs(job, tmp_path):
    write_corpus(tmp_path / "in" / "a.csv")
    [file] = find_corpus(str(tmp_path / "in")).files
    removed = RemovedRows(NO_IDS, {"a.csv": np.array(REMOVED)})
    first = apply_to_file(job, file, removed, None)
    first_path = tmp_path / "out" / first.path
    linked = apply_to_file(replace(job, data="data/2"), file, removed, first)
    assert linked == replace(first, path="data/2/a.csv")
    assert (tmp_path / "out" / linked.path).samefile(first_path)
    more = RemovedRows(NO_IDS, {"a.csv": np.array([0, *REMOVED])})
    other = apply_to_file(replace(job, data="data/3"), file, more, first)
    assert other.rows == 4 and not (tmp_path / "out" / other.path).samefile(first_path)
    first_path.write_text("damaged")  # then it is written from the corpus again
    mended = apply_to_file(replace(job, data="data/4"), file, removed, first)
    assert mended == replace(first, path="data/4/a.csv")
    data = (tmp_path / "out" / mended.path).read_bytes()
    assert hashlib.sha256(data).hexdigest() == first.sha256


def test_read_note_returns_what_a_finished_task_made(job, tmp_path):
    write_corpus(tmp_path / "in" / "a.csv")
    [file] = find_corpus(str(tmp_path / "in")).files
    assert read_note(job, file) is None
    made = apply_to_file(job, file, RemovedRows(NO_IDS, {}), None)
    assert read_note(job, file) == made
    (tmp_path / "out" / made.path).unlink()
    assert read_note(job, file) is None
