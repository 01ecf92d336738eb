"""Copies of models in a temporary folder that others may write to."""

import os
import re
from pathlib import Path

import pytest

from sbert_core.storage import LocalStorage
from workers.common.model_cache import fetch_model

NOBODY = 65534
PLACE = "s3://models/one"
FILES = {"config.json": b"{}", "1_Pooling/config.json": b"[]", "model.safetensors": b"weights"}


@pytest.fixture
def shared(tmp_path, monkeypatch) -> Path:
    """The machine's temporary folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "shared"))
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    return tmp_path / "shared"


@pytest.fixture
def store(tmp_path, monkeypatch) -> LocalStorage:
    """What s3:// names here."""
    store = LocalStorage(tmp_path / "store")
    for name, data in FILES.items():
        store.put(name, data)
    monkeypatch.setattr("workers.common.model_cache.storage_at", lambda place: store)
    return store


def contents(folder: str) -> dict[str, bytes]:
    found = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def copies_in(shared: Path) -> Path:
    return shared / f"sbert-models-{os.getuid()}"


def test_model_copy_is_whole_private_and_made_once(shared, store, monkeypatch):
    folder = fetch_model(PLACE)
    assert contents(folder) == FILES
    assert Path(folder).parent == copies_in(shared)
    assert copies_in(shared).stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(store, "read", lambda name: pytest.fail("read again"))
    assert fetch_model(PLACE) == folder


def test_model_copy_of_a_changed_model_holds_nothing_of_the_old_one(shared, store):
    first = fetch_model(PLACE)
    (store.root / "model.safetensors").unlink()
    (store.root / "model-1-of-1.safetensors").write_bytes(b"new weights")
    second = fetch_model(PLACE)
    assert contents(second) == {
        **{name: FILES[name] for name in ("config.json", "1_Pooling/config.json")},
        "model-1-of-1.safetensors": b"new weights",
    }
    assert contents(first) == FILES  # others may be reading it


def test_model_copy_with_a_file_missing_is_made_again(shared, store):
    folder = Path(fetch_model(PLACE))
    (folder / "1_Pooling/config.json").unlink()
    (folder / "model.safetensors").write_bytes(b"wei")
    assert contents(fetch_model(PLACE)) == FILES


def test_model_copy_that_breaks_off_leaves_nothing(shared, store, monkeypatch):
    read = store.read

    def broken(name):
        if name == "model.safetensors":
            raise OSError("the network is gone")
        return read(name)

    with monkeypatch.context() as patch:
        patch.setattr(store, "read", broken)
        with pytest.raises(OSError, match="the network is gone"):
            fetch_model(PLACE)
    assert [path for path in copies_in(shared).iterdir() if path.is_dir()] == []
    assert contents(fetch_model(PLACE)) == FILES


def link_to_a_folder(copies: Path, elsewhere: Path) -> None:
    copies.symlink_to(elsewhere)


def link_to_nothing(copies: Path, elsewhere: Path) -> None:
    copies.symlink_to(elsewhere / "missing")


def folder_open_to_all(copies: Path, elsewhere: Path) -> None:
    copies.mkdir()
    copies.chmod(0o777)


def folder_others_may_read(copies: Path, elsewhere: Path) -> None:
    copies.mkdir()
    copies.chmod(0o750)


def folder_of_somebody_else(copies: Path, elsewhere: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can make a folder of another user")
    copies.mkdir(mode=0o700)
    os.chown(copies, NOBODY, NOBODY)


def plain_file(copies: Path, elsewhere: Path) -> None:
    copies.write_bytes(b"")


@pytest.mark.parametrize(
    "prepare",
    [
        link_to_a_folder,
        link_to_nothing,
        folder_open_to_all,
        folder_others_may_read,
        folder_of_somebody_else,
        plain_file,
    ],
)
def test_model_copy_refuses_a_place_that_is_not_ours_alone(prepare, shared, store, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "victim").write_bytes(b"precious")
    prepare(copies_in(shared), elsewhere)
    with pytest.raises(ValueError, match=re.escape(str(copies_in(shared)))) as refusal:
        fetch_model(PLACE)
    assert "\n" not in str(refusal.value)
    assert contents(str(elsewhere)) == {"victim": b"precious"}
    if copies_in(shared).is_dir() and not copies_in(shared).is_symlink():
        assert list(copies_in(shared).iterdir()) == []
