"""The local store: locks, moves, and what a refused run leaves."""

import os

import pytest

from sbert_core.storage import BusyError, storage_at


def test_one_writer_at_a_time(tmp_path):
    with storage_at(tmp_path / "out").lock():
        with pytest.raises(BusyError), storage_at(tmp_path / "out").lock():
            pass
    with storage_at(tmp_path / "out").lock():
        pass


def test_a_refused_run_leaves_no_new_folder(tmp_path):
    def refused(place):
        storage = storage_at(place)
        with pytest.raises(ValueError, match="no"), storage.lock():
            storage.put("_work/x", b"x")
            raise ValueError("no")

    refused(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    (tmp_path / "old/kept").write_bytes(b"k")
    refused(tmp_path / "old")
    assert storage_at(tmp_path / "old").read("_work/x") == b"x"
    assert (tmp_path / "old/kept").exists()


def test_a_lock_on_a_folder_that_was_removed_is_taken_again(tmp_path):
    storage = storage_at(tmp_path / "out")
    handle = storage._locked()
    storage_at(tmp_path / "out").delete(["_lock"])
    with storage_at(tmp_path / "out").lock(), pytest.raises(BusyError):
        storage._locked()
    os.close(handle)


def test_a_file_is_moved_here(tmp_path):
    storage = storage_at(tmp_path / "out")
    with storage.work_folder() as folder:
        path = tmp_path / "out" / folder / "big"
        path.write_bytes(b"content")
        inode = path.stat().st_ino
        storage.put_file("data/big", path)
    assert storage.read("data/big") == b"content"
    assert (tmp_path / "out/data/big").stat().st_ino == inode
