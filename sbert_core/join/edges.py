"""Edges between numbered rows, on their way from tasks that find them to tasks that write them.

In:  edges as they are found, in any order.
Out: files of a bounded number of edges each, those of one part of the rows side by side; a note at
     the end says how many files there are. Without the note there is nothing.
"""

import json
from collections.abc import Iterable

import numpy as np

from sbert_core.join.bounded import Edges
from sbert_core.storage import Storage
from sbert_core.vectors.shuffle import read_run, write_runs

EDGE = np.dtype([("a", "<i8"), ("b", "<i8"), ("cos", "<f4")])
BUFFERED_EDGES = 1_000_000


def records_of(edges: Edges) -> np.ndarray:
    records = np.empty(len(edges), EDGE)
    records["a"], records["b"], records["cos"] = edges.a, edges.b, edges.cos
    return records


class EdgeWriter:
    """Edges of one task. starts: the first row `a` of each part, rising."""

    def __init__(self, storage: Storage, name: str, starts: np.ndarray) -> None:
        self.storage = storage
        self.name = name
        self.starts = starts
        self.num_edges = 0
        self._num_files = 0
        self._waiting: list[np.ndarray] = []
        self._num_waiting = 0

    def add(self, edges: Edges) -> None:
        self._waiting.append(records_of(edges))
        self._num_waiting += len(edges)
        if self._num_waiting >= BUFFERED_EDGES:
            self._flush()

    def close(self) -> int:
        """Write what is left and the note; the number of edges."""
        if self._waiting:
            self._flush()
        note = {"files": self._num_files, "edges": self.num_edges}
        self.storage.put(note_name(self.name), json.dumps(note).encode())
        return self.num_edges

    def _flush(self) -> None:
        records = np.concatenate(self._waiting)
        part = np.searchsorted(self.starts, records["a"], side="right") - 1
        name = _file_name(self.name, self._num_files)
        write_runs(self.storage, name, part, records, len(self.starts))
        self.num_edges += len(records)
        self._num_files += 1
        self._waiting, self._num_waiting = [], 0


def note_name(name: str) -> str:
    return f"{name}.json"


def is_written(storage: Storage, name: str) -> bool:
    return storage.stat(note_name(name)) is not None


def part_edges(storage: Storage, names: Iterable[str], part: int, num_parts: int) -> np.ndarray:
    """Records of one part from the files of several tasks, by rows; each pair once."""
    found = [np.empty(0, EDGE)]
    for name in names:
        note = json.loads(storage.read(note_name(name)))
        found += [
            read_run(storage, _file_name(name, number), part, num_parts, EDGE)
            for number in range(note["files"])
        ]
    records = np.concatenate(found)
    records = records[np.lexsort((records["b"], records["a"]))]
    is_new = np.ones(len(records), bool)
    is_new[1:] = (records["a"][1:] != records["a"][:-1]) | (records["b"][1:] != records["b"][:-1])
    return records[is_new]


def _file_name(name: str, number: int) -> str:
    return f"{name}-{number:04d}.edges"
