"""Records of units: the keys on disk, and the way from actor to driver."""

import json
from dataclasses import replace

import pytest

from sbert_core.data_file import DataFile
from sbert_core.json_record import encode
from sbert_core.storage import LocalStorage
from workers.embed.records import (
    CommitRecord,
    UnitResult,
    UnitStats,
    read_commits,
    read_stats,
)

DATA = DataFile(path="data/g/000001-ab.parquet", rows=3, sha256="ab", bytes=5)
RECORD = CommitRecord(
    unit=1, file="a.parquet", first_row=4, num_rows=4, rows_in=4, documents=3, truncated=1,
    lost_tokens=7, tokens=20, data=DATA, quarantine=None,
)  # fmt: skip


def test_commit_record_keeps_its_keys_and_is_read_back(tmp_path):
    storage = LocalStorage(tmp_path)
    storage.put("w/commits/000001.json", RECORD.to_json())
    assert json.loads(storage.read("w/commits/000001.json")) == {
        "unit": 1,
        "file": "a.parquet",
        "first_row": 4,
        "num_rows": 4,
        "rows_in": 4,
        "documents": 3,
        "truncated": 1,
        "lost_tokens": 7,
        "tokens": 20,
        "data": {"path": "data/g/000001-ab.parquet", "rows": 3, "sha256": "ab", "bytes": 5},
        "quarantine": None,
    }
    assert read_commits(storage, "w") == [RECORD]


def test_commit_is_whole_only_with_all_its_files_in_their_sizes():
    bad = DataFile(path="_quarantine/g/000001-cd.parquet", rows=1, sha256="cd", bytes=2)
    record = replace(RECORD, quarantine=bad)
    assert not record.is_whole({})
    assert RECORD.is_whole({DATA.path: 5}) and not record.is_whole({DATA.path: 5})
    assert not record.is_whole({DATA.path: 5, bad.path: 1})
    assert record.is_whole({DATA.path: 5, bad.path: 2})


def test_files_of_a_commit_state_their_source_in_the_manifest():
    source = {"file": "a.parquet", "first_row": 4, "num_rows": 4, "documents": 3, "truncated": 1,
              "lost_tokens": 7, "tokens": 20}  # fmt: skip
    data, quarantine = replace(RECORD, quarantine=replace(DATA, path="q")).data_files()
    assert (data.path, data.source, quarantine.path, quarantine.source) == (
        DATA.path, source, "q", source,
    )  # fmt: skip


def test_stats_of_a_unit_without_a_model_have_no_keys_of_one(tmp_path):
    storage = LocalStorage(tmp_path)
    filled = UnitStats(num_encoded=0, num_reused=2, num_repeats=3)
    encoded = replace(filled, num_tokens=9, num_unknown=0, num_padding=4, batch_invariant=False)
    assert list(encode(filled)) == ["num_encoded", "num_reused", "num_repeats", "num_tokens"]
    assert list(encode(encoded))[4:] == ["num_unknown", "num_padding", "batch_invariant"]
    for number, stats in enumerate((filled, encoded)):
        storage.put(f"w/accounts/{number}.json", json.dumps(encode(stats)).encode())
    assert read_stats(storage, "w") == {0: filled, 1: encoded}


@pytest.mark.parametrize("commit", [RECORD, None], ids=["committed", "waiting"])
def test_result_of_a_unit_comes_back_from_its_table(commit):
    stats = UnitStats(num_encoded=1, num_reused=0, num_repeats=0, num_tokens=3, num_unknown=0,
                      num_padding=0, batch_invariant=True)  # fmt: skip
    result = UnitResult(unit=3, stats=stats, commit=commit, model_seconds=0.5, num_bad=1,
                        num_crashes=0, start=12.5, private_bytes=2**40)  # fmt: skip
    assert UnitResult.from_table(result.to_table()) == [result]
