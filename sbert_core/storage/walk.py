"""Files of a scope below a local folder, symbolic links followed.

A folder is listed once for one scope, whatever links lead to it: the first of its paths in the
order of bytes counts. So no file comes twice, loops end, and broken links are skipped.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from sbert_core.storage.base import Scope, Stat

# A folder, a file in the place of a folder, a link to itself, a name that is too long.
NOT_A_FILE = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def stat_or_none(path: Path) -> os.stat_result | None:
    """`stat` of what a path leads to; None if there is nothing."""
    try:
        return path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, *NOT_A_FILE):
            return None
        raise


def walk(root: Path, top: str, scope: Scope) -> Iterator[Stat]:
    """Files of a scope below the folder `top` of a root, with their names below the root."""
    seen: dict[tuple[int, int], list[Scope]] = {}
    left = [(top, scope)]
    while left:
        folder, scope = left.pop()
        found = stat_or_none(root / folder)
        if found is None or not stat.S_ISDIR(found.st_mode):
            continue
        earlier = seen.setdefault((found.st_dev, found.st_ino), [])
        if scope in earlier:
            continue
        below: list[tuple[str, Scope]] = []
        for entry in _entries(root / folder):
            name = f"{folder}/{entry.name}" if folder else entry.name
            if (inner := scope.inside(entry.name)) is not None and _is_folder(entry):
                below.append((name, inner))
            elif scope.has(entry.name) and not any(own.has(entry.name) for own in earlier):
                file = stat_or_none(root / name)
                if file is not None and stat.S_ISREG(file.st_mode):
                    yield Stat(name, file.st_size, str(file.st_mtime_ns))
        earlier.append(scope)
        left += sorted(below, key=lambda own: os.fsencode(f"{own[0]}/"), reverse=True)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except FileNotFoundError:  # removed while its parent was read
        return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    if not entry.is_symlink():
        return entry.is_dir()
    found = stat_or_none(Path(entry.path))
    return found is not None and stat.S_ISDIR(found.st_mode)
