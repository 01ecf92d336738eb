"""Content digests: equal for equal contents, whatever the machine, path or order of keys."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def digest(ingredients: Mapping[str, object]) -> str:
    """Sha256 of named, JSON-like values, independent of the order of names.

    Other objects enter by `str`; a TypeError for arrays, whose `str` is abbreviated.
    """
    text = json.dumps(ingredients, sort_keys=True, ensure_ascii=True, default=_to_text)
    return hashlib.sha256(text.encode()).hexdigest()


def _to_text(value: object) -> str:
    if isinstance(value, np.ndarray):
        raise TypeError("an array is printed cut short; give a list")
    return str(value)


def folder_digest(folder: Path) -> str:
    """Sha256 over the relative paths and contents of all files of a folder."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(f"{path.relative_to(folder).as_posix()} {file_digest(path)}\n".encode())
    return total.hexdigest()


def file_digest(path: Path) -> str:
    """Sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
