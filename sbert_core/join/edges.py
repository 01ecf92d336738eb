"""Edges between numbered rows, on their way from tasks that find them to tasks that write them.

In:  edges as they are found, in any order.
Out: files of a bounded number of edges each, grouped by part of the rows, and a commit record with
     the number of files. Without the record a task has written nothing that counts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sbert_core.join.bounded import Edges
from sbert_core.json_record import Count, decode
from sbert_core.storage import Storage
from sbert_core.vectors.grouped_file import read_group, write_groups

EDGE_DTYPE = np.dtype([("a", "<i8"), ("b", "<i8"), ("cos", "<f4")])
BUFFERED_EDGES = 1_000_000  # 20 MB


@dataclass(frozen=True, slots=True)
class EdgeCommit:
    """The commit record of a task: how many files and edges it wrote."""

    files: Count
    edges: Count


def edge_records(edges: Edges) -> np.ndarray:
    """Edges as records of EDGE_DTYPE."""
    records = np.empty(len(edges), EDGE_DTYPE)
    records["a"], records["b"], records["cos"] = edges.a, edges.b, edges.cos
    return records


class EdgeWriter:
    """Writes the edges of one task under a name.

    starts: the first row `a` of each part, rising; an edge belongs to the part of its row `a`.
    """

    def __init__(self, storage: Storage, name: str, starts: np.ndarray) -> None:
        self.storage = storage
        self.name = name
        self.starts = starts
        self.num_edges = 0
        self._num_files = 0
        self._waiting: list[np.ndarray] = []
        self._num_waiting = 0

    def add(self, edges: Edges) -> None:
        """Buffer edges; a full buffer becomes a file."""
        self._waiting.append(edge_records(edges))
        self._num_waiting += len(edges)
        if self._num_waiting >= BUFFERED_EDGES:
            self._flush()

    def close(self) -> int:
        """Write the rest and the commit record; returns the number of edges."""
        if self._waiting:
            self._flush()
        commit = {"files": self._num_files, "edges": self.num_edges}
        self.storage.put(_commit_name(self.name), json.dumps(commit).encode())
        return self.num_edges

    def _flush(self) -> None:
        records = np.concatenate(self._waiting)
        part = np.searchsorted(self.starts, records["a"], side="right") - 1
        name = _file_name(self.name, self._num_files)
        write_groups(self.storage, name, part, records, len(self.starts))
        self.num_edges += len(records)
        self._num_files += 1
        self._waiting, self._num_waiting = [], 0


def is_written(storage: Storage, name: str) -> bool:
    """Has the task of this name committed its edges?"""
    return storage.stat(_commit_name(name)) is not None


@dataclass(frozen=True, slots=True)
class EdgePart:
    """One part of the edges. names: of the tasks that wrote some of them."""

    names: Sequence[str]
    number: int
    num_parts: int

    def read(self, storage: Storage) -> np.ndarray:
        """Records of EDGE_DTYPE, sorted by a and b; each pair once."""
        found = [np.empty(0, EDGE_DTYPE)]
        for name in self.names:
            data = storage.read(_commit_name(name))
            commit = decode(EdgeCommit, json.loads(data), _commit_name(name))
            files = [_file_name(name, number) for number in range(commit.files)]
            found += [
                read_group(storage, file, self.number, self.num_parts, EDGE_DTYPE) for file in files
            ]
        records = np.concatenate(found)
        records = records[np.lexsort((records["b"], records["a"]))]
        a, b = records["a"], records["b"]
        is_new = np.ones(len(records), bool)
        is_new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
        return records[is_new]


def _commit_name(name: str) -> str:
    return f"{name}.json"


def _file_name(name: str, number: int) -> str:
    return f"{name}-{number:04d}.edges"
