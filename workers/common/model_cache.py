"""Local copies of models in object stores.

In:  a local folder, or an s3:// prefix that holds a model.
Out: a local folder; objects are fetched once per machine, place and version, and renamed at last.

Copies are in the machine's temporary folder, which other users may write to: only a folder that is
private to this user is used, since who can write there decides which model is loaded.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from sbert_core.storage import LocalStorage, Stat, Storage, storage_at


def fetch_model(place: str) -> str:
    """A local folder with the model: `place` itself, or a copy of its objects.

    FileNotFoundError for a prefix without objects; ValueError where copies would not be private.
    """
    if "://" not in place:
        return place
    storage = storage_at(place)
    stats = sorted(storage.list(), key=lambda found: found.name)
    if not stats:
        raise FileNotFoundError(f"model {place} does not exist")
    name = hashlib.sha256(repr((place, stats)).encode()).hexdigest()[:16]
    copies = make_private_folder(Path(tempfile.gettempdir()) / f"sbert-models-{os.getuid()}")
    folder = copies / name
    with (copies / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_whole(folder, stats):
            shutil.rmtree(
                folder, ignore_errors=True
            )  # remains of a copy after temporary files were cleaned up
            with tempfile.TemporaryDirectory(dir=copies) as fresh:
                _copy(storage, stats, Path(fresh) / "model")
                (Path(fresh) / "model").rename(folder)
    return str(folder)


def make_private_folder(path: Path) -> Path:
    """Make the folder; ValueError if it exists and is not private to this user.

    Its name can be guessed, so another user may have made a link or folder there first.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    is_private = (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and stat.S_IMODE(found.st_mode) & 0o077 == 0
    )
    if not is_private:
        raise ValueError(
            f"{path} is not a folder of user {os.getuid()} alone ({stat.filemode(found.st_mode)}, "
            f"of user {found.st_uid}); remove it, or name a private TMPDIR"
        )
    return path


def _is_whole(folder: Path, stats: list[Stat]) -> bool:
    copy = LocalStorage(folder)
    return all((own := copy.stat(s.name)) is not None and own.size == s.size for s in stats)


def _copy(storage: Storage, stats: list[Stat], folder: Path) -> None:
    copy = LocalStorage(folder)
    for found in stats:
        target = copy.path(found.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(storage.read(found.name))
