"""Docstrings of Python's libraries: real text that is on every machine with Python.

In:  folders of Python source.
Out: docstrings with the file and line they come from; the same choice for the same folders.
"""

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

from sbert_core.text import invalid_reason

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
MAX_SOURCE_BYTES = 500_000


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring. id: folder, file and line."""

    id: str
    text: str


def library_folders() -> list[Path]:
    """Folders of the standard library and of installed packages of the running Python."""
    return [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]


def collect_docstrings(folders: list[Path], limit: int) -> list[Docstring]:
    """The first `limit` docstrings, taking one file of each package in turn for variety."""
    packages = [
        _sources(package)
        for folder in folders
        for package in sorted(folder.iterdir())
        if package.name not in ("site-packages", "__pycache__")
    ]
    turns = (path for turn in zip_longest(*packages) for path in turn if path is not None)
    found = (docstring for path in turns for docstring in _docstrings(path))
    return list(islice(found, limit))


def _sources(package: Path) -> Iterator[Path]:
    if package.is_file():
        return iter([package] if package.suffix == ".py" else [])
    return iter(sorted(package.rglob("*.py")))


def _docstrings(path: Path) -> Iterator[Docstring]:
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other packages
            tree = ast.parse(path.read_bytes())
    except (
        SyntaxError,
        ValueError,
        OSError,
    ):  # templates, test data and broken links of other packages
        return
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, Documented) else None
        if text and invalid_reason(text) is None:
            line = getattr(node, "lineno", 1)
            yield Docstring(id=f"{path.parent.name}/{path.name}:{line}", text=text)
