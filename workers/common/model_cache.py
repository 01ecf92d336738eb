"""A model's place -> a folder on this machine.

In:  a local folder, or an s3:// prefix that holds one.
Out: a local folder; objects are fetched once per machine, place and version, and appear whole.

Copies lie in the machine's temporary folder, which others may write to: only a folder that is
ours alone is used, since whoever can write there chooses the model and what is overwritten.
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


def fetched(place: str) -> str:
    """The folder itself, or a copy of the objects below the machine's temporary folder."""
    if "://" not in place:
        return place
    storage = storage_at(place)
    stats = sorted(storage.list(), key=lambda found: found.name)
    if not stats:
        raise FileNotFoundError(f"model {place} does not exist")
    name = hashlib.sha256(repr((place, stats)).encode()).hexdigest()[:16]
    copies = private_folder(Path(tempfile.gettempdir()) / f"sbert-models-{os.getuid()}")
    folder = copies / name
    with (copies / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_whole(folder, stats):
            shutil.rmtree(folder, ignore_errors=True)  # what a cleaner of temporary files has left
            with tempfile.TemporaryDirectory(dir=copies) as fresh:
                _copy(storage, stats, Path(fresh) / "model")
                (Path(fresh) / "model").rename(folder)
    return str(folder)


def private_folder(path: Path) -> Path:
    """Make the folder, or refuse one that is not of this user alone.

    Its name is foreseeable, so anybody may have been there first, with a link or a folder.
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
