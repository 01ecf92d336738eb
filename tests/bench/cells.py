"""Results of a long benchmark, each in a file of its own.

In:  what a result depends on, and the function that measures it.
Out: the result, from its file if it was measured before: an interrupted run goes on where it was.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_core.digest import digest


@dataclass(frozen=True, slots=True)
class Cells:
    """A folder of results, named by a word and the digest of what they depend on."""

    folder: Path

    def load_or_measure(self, name: str, identity: dict, measure: Callable[[], dict]) -> dict:
        """The result as JSON; a changed identity is another cell."""
        path = self._path(name, identity, "json")
        if path.is_file():
            return json.loads(path.read_text())["result"]
        result = measure()
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"identity": identity, "result": result}, indent=2) + "\n")
        part.replace(path)
        return result

    def load_or_encode(
        self, name: str, identity: dict, encode: Callable[[], np.ndarray]
    ) -> np.ndarray:
        """The same for an array."""
        path = self._path(name, identity, "npy")
        if not path.is_file():
            with (part := path.with_suffix(".part")).open("wb") as file:
                np.save(file, encode())
            part.replace(path)
        return np.load(path)

    def _path(self, name: str, identity: dict, suffix: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{name}-{digest(identity)[:12]}.{suffix}"
