"""One name for a set of facts, or for a folder: equal for equal contents, wherever they are."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def digest(ingredients: Mapping[str, object]) -> str:
    """One name for a set of named, JSON-like ingredients, whatever their order."""
    text = json.dumps(ingredients, sort_keys=True, ensure_ascii=True, default=_spelled)
    return hashlib.sha256(text.encode()).hexdigest()


def _spelled(value: object) -> str:
    if isinstance(value, np.ndarray):
        raise TypeError("an array is printed cut short; give a list")
    return str(value)


def folder_digest(folder: Path) -> str:
    """One name for all files of a folder."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(f"{path.relative_to(folder).as_posix()} {file_digest(path)}\n".encode())
    return total.hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
