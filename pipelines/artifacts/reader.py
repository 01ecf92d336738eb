"""Published artifacts, opened for reading.

In:  a folder or URI that holds a manifest.
Out: Artifact: its manifest, and its rows as record batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipelines.artifacts.manifest import DataFile, Manifest
from sbert_core.corpus.published import DATA, MANIFEST
from sbert_core.storage import storage_at
from sbert_core.vectors.reader import part_batches
from sbert_core.vectors.row_ranges import Piece
from sbert_core.vectors.table import VectorTable

READ_ROWS = 8192


@dataclass(frozen=True, slots=True)
class Artifact:
    """A published artifact, opened for reading."""

    uri: str
    manifest: Manifest

    @classmethod
    def open(cls, place: str | Path) -> "Artifact":
        storage = storage_at(place)
        if storage.stat(MANIFEST) is None:
            raise FileNotFoundError(f"{place} holds no published artifact (no {MANIFEST})")
        return cls(storage.uri, Manifest.from_json(storage.read(MANIFEST), place))

    @classmethod
    def vectors(cls, place: str | Path) -> "Artifact":
        """Vectors, and at least one."""
        found = cls._of_kind(place, "vectors", "embed")
        if not found.rows:
            raise ValueError(f"{place} holds no rows; embed a corpus that has some")
        return found

    @classmethod
    def pairs(cls, place: str | Path) -> "Artifact":
        """All pairs of one corpus above a threshold."""
        found = cls._of_kind(place, "pairs", "pairs")
        if "b" in found.manifest.made_from or found.manifest.spec["top_k"] is not None:
            kind = "of two corpora" if "b" in found.manifest.made_from else "of nearest rows"
            raise ValueError(
                f"{place} holds pairs {kind}; give all pairs of one corpus: sbert pairs VECTORS "
                "--threshold T"
            )
        return found

    @classmethod
    def clusters(cls, place: str | Path) -> "Artifact":
        return cls._of_kind(place, "clusters", "cluster")

    @classmethod
    def _of_kind(cls, place: str | Path, kind: str, command: str) -> "Artifact":
        found = cls.open(place)
        if found.manifest.kind != kind:
            raise ValueError(
                f"{place} holds {found.manifest.kind}, not {kind}; make some with sbert {command}"
            )
        return found

    @property
    def folder(self) -> str:
        """The published data folder, for any Parquet reader."""
        return f"{self.uri}/{DATA}/{self.manifest.generation}"

    @property
    def rows(self) -> int:
        return self.manifest.rows

    @property
    def pieces(self) -> list[Piece]:
        """All rows, file by file."""
        return [
            Piece(file.path, file.sha256, file.rows) for file in self.manifest.files if file.rows
        ]

    def table(self, name: str = "a") -> VectorTable:
        """All rows of vectors by number. name: what a join calls this side."""
        return VectorTable(name, self.uri, self.manifest.spec["scale"], tuple(self.pieces))

    def read(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Record batches of all rows in order, a few thousand rows in memory at a time."""
        return self._batches(self.manifest.files, columns)

    def quarantined(self) -> Iterator[pa.RecordBatch]:
        """Rows that have no result, with reasons."""
        return self._batches(self.manifest.quarantine, None)

    def beside(self, folder: str) -> Iterator[pa.RecordBatch]:
        """Rows of a list that goes with the data."""
        files = [file for file in self.manifest.beside if file.path.startswith(f"{folder}/")]
        return self._batches(files, None)

    def _batches(
        self, files: Sequence[DataFile], columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        storage = storage_at(self.uri)
        for file in files:
            yield from part_batches(storage, file.path, columns, READ_ROWS)
