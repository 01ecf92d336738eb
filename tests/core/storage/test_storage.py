"""The local store: locks, moves, and what a refused run leaves."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sbert_core.storage import BusyError, storage_at


def test_one_writer_at_a_time(tmp_path):
    with storage_at(tmp_path / "out").lock():
        with pytest.raises(BusyError), storage_at(tmp_path / "out").lock():
            pass
    with storage_at(tmp_path / "out").lock():
        pass


def refuse(storage, *saved):
    with pytest.raises(ValueError, match="no"), storage.lock():
        for name in saved:
            storage.put(name, b"x")
        raise ValueError("no")


def test_refusal_before_anything_is_saved_leaves_no_new_folder(tmp_path):
    refuse(storage_at(tmp_path / "new"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("saved", ["_work/g/commits/1", "data/g/part-1"])
def test_refusal_after_work_was_saved_keeps_it(tmp_path, saved):
    storage = storage_at(tmp_path / "new")
    refuse(storage, saved)
    assert storage.read(saved) == b"x"


def test_refusal_keeps_a_folder_that_was_there(tmp_path):
    (tmp_path / "old").mkdir()
    refuse(storage_at(tmp_path / "old"))
    assert (tmp_path / "old").is_dir()


def test_put_leaves_the_file_and_nothing_else(tmp_path):
    storage_at(tmp_path).put("page.html", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_put_by_many_writers_at_once_loses_nothing(tmp_path):
    storages = [storage_at(tmp_path / "out") for _ in range(8)]

    def write(number):
        for turn in range(20):
            storages[number].put(f"{number}/{turn}", b"x")
            with storages[number].work_folder() as folder:
                (Path(folder) / "y").write_bytes(b"y")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    names = {stat.name for stat in storages[0].list()}
    assert names == {f"{number}/{turn}" for number in range(8) for turn in range(20)}


def test_a_lock_on_a_folder_that_was_removed_is_taken_again(tmp_path):
    storage = storage_at(tmp_path / "out")
    handle = storage._acquire_lock()
    storage_at(tmp_path / "out").delete(["_lock"])
    with storage_at(tmp_path / "out").lock(), pytest.raises(BusyError):
        storage._acquire_lock()
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
