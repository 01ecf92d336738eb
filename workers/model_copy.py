"""A model's place -> a folder on this machine.

In:  a local folder, or an s3:// prefix that holds one.
Out: a local folder; objects are fetched once per machine and place.
"""

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path

from sbert_core.storage import LocalStorage, storage_at

COMPLETE = ".complete"


def fetched(place: str) -> str:
    """The folder itself, or a copy of the objects in the machine's temporary folder."""
    if "://" not in place:
        return place
    name = hashlib.sha256(place.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"sbert-mill-{os.getuid()}" / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        storage = storage_at(place)
        stats = sorted(storage.list(), key=lambda stat: stat.name)
        if not stats:
            raise FileNotFoundError(f"model {place} does not exist")
        wanted = repr(stats)
        mark = folder / COMPLETE
        if not mark.exists() or mark.read_text(encoding="utf-8") != wanted:
            mark.unlink(missing_ok=True)
            for stat in stats:
                target = LocalStorage(folder).path(stat.name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(storage.read(stat.name))
            mark.write_text(wanted, encoding="utf-8")
    return str(folder)
