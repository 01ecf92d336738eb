"""Results of tasks, kept beside the work until the artifact is published."""

import io
import json
from typing import Any

import numpy as np

from sbert_core.storage import Storage

JSON = "json"


class Notes:
    """Records by name: plain values, and arrays by any key under a name of their own."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def keep(self, name: str, record: dict[str, Any], **arrays: dict[int, np.ndarray]) -> None:
        flat: dict[str, Any] = {JSON: np.array(json.dumps(record))}
        flat |= {f"{kind}/{key}": v for kind, own in arrays.items() for key, v in own.items()}
        sink = io.BytesIO()
        np.savez(sink, **flat)
        self._storage.put(self._name(name), sink.getvalue())

    def find(self, name: str) -> dict[str, Any] | None:
        """The record with its arrays, or None if there is none."""
        if self._storage.stat(self._name(name)) is None:
            return None
        with np.load(io.BytesIO(self._storage.read(self._name(name)))) as file:
            record = json.loads(str(file[JSON]))
            for key in file.files:
                if key != JSON:
                    kind, _, number = key.partition("/")
                    record.setdefault(kind, {})[int(number)] = file[key]
        return record

    def _name(self, name: str) -> str:
        return f"{self._folder}/{name}.npz"
