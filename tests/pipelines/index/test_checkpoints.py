"""Checkpoints of an index build, and the card, read back as they were written."""

import io
import json

import numpy as np
import pytest

from pipelines.index.checkpoints import StepCheckpoints
from sbert_core.data_file import ListedFile
from sbert_core.index.shard_record import ShardRecord
from sbert_core.storage import storage_at
from workers.index.build import BuiltShard, TrainedIndex

FILE = {"path": "data/g/shard-00007-0123.hnsw", "sha256": "ab" * 32, "bytes": 12}
RECORD = {"rows": 9, "live": 8, "nodes": 7, "parts": ["cd" * 32], "files": [FILE]}


@pytest.fixture
def steps(tmp_path):
    return StepCheckpoints(storage_at(tmp_path), "_work/g")


def test_checkpoints_of_a_new_build_are_none(steps):
    assert steps.load_trained() is None
    assert steps.load_shard(7) is None


def test_checkpoints_are_loaded_as_they_were_saved(steps):
    trained = TrainedIndex(ListedFile(**FILE), 1.5)
    steps.save_trained(trained)
    assert steps.load_trained() == trained
    record = ShardRecord(rows=9, live=8, nodes=7, parts=("cd" * 32,), files=(ListedFile(**FILE),))
    held = {8: np.ones((2, 3), np.float32), 16: np.zeros((2, 3), np.float32)}
    steps.save_shard(BuiltShard(number=7, record=record, seconds=2.5, held=held))
    found = steps.load_shard(7)
    assert (found.number, found.record, found.seconds) == (7, record, 2.5)
    assert list(found.held) == [8, 16]
    np.testing.assert_array_equal(found.held[8], held[8])


def test_checkpoint_of_an_earlier_version_is_loaded(steps, tmp_path):
    """Keys of the file are those of version 0.1."""
    text = json.dumps({"number": 7, **RECORD, "seconds": 2.5})
    sink = io.BytesIO()
    np.savez(sink, **{"json": np.array(text), "held/8": np.ones((2, 3), np.float32)})
    (tmp_path / "_work/g").mkdir(parents=True)
    (tmp_path / "_work/g/shard-00007.npz").write_bytes(sink.getvalue())
    found = steps.load_shard(7)
    assert (found.record.live, found.record.files[0].path) == (8, FILE["path"])
    assert found.held[8].shape == (2, 3)
    steps.save_shard(found)
    with np.load(tmp_path / "_work/g/shard-00007.npz") as file:
        assert str(file["json"]) == text
        assert file.files == ["json", "held/8"]
