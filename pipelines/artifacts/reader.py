"""Published artifacts, opened for reading.

In:  a folder or URI that holds a manifest.
Out: Artifact: its manifest, and its rows as record batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar, cast

import pyarrow as pa

from pipelines.artifacts.errors import NotAnArtifact, ScatteredArtifact, WrongKind
from pipelines.artifacts.kinds import CLUSTERS, INDEX, PAIRS, SHARDS, VECTORS, Kind
from pipelines.artifacts.manifest import (
    AnyManifest,
    ClustersManifest,
    IndexManifest,
    Manifest,
    PairsManifest,
    ShardsManifest,
    VectorsManifest,
    read_manifest,
)
from sbert_core.corpus.published import DATA, MANIFEST
from sbert_core.data_file import DataFile
from sbert_core.storage import storage_at
from sbert_core.vectors.reader import stream_part
from sbert_core.vectors.row_ranges import RowRange
from sbert_core.vectors.table import VectorTable

READ_ROWS = 8192
Listed = TypeVar("Listed", bound=AnyManifest, covariant=True)
Settings = TypeVar("Settings")
Inputs = TypeVar("Inputs")
Metrics = TypeVar("Metrics")


@dataclass(frozen=True, slots=True)
class Artifact(Generic[Listed]):
    """A published artifact, opened for reading.

    >>> Artifact.open("vectors").rows  # doctest: +SKIP
    60000
    """

    uri: str
    manifest: Listed

    @staticmethod
    def open(place: str | Path) -> "AnyArtifact":
        """An artifact of any kind; NotAnArtifact where there is none."""
        storage = storage_at(place)
        if storage.stat(MANIFEST) is None:
            raise NotAnArtifact(str(place), MANIFEST)
        return Artifact(storage.uri, read_manifest(storage.read(MANIFEST), place))

    @staticmethod
    def vectors(place: str | Path) -> "VectorsArtifact":
        """Vectors, at least one; WrongKind for another kind."""
        found = _open_kind(place, VECTORS)
        if not found.rows:
            raise ValueError(f"{place} holds no rows; embed a corpus that has some")
        return found

    @staticmethod
    def pairs(place: str | Path) -> "PairsArtifact":
        """All pairs of one corpus above a threshold; other pairs are refused."""
        found = _open_kind(place, PAIRS)
        if (reason := other_pairs(found.manifest)) is not None:
            raise ValueError(
                f"{place} holds pairs {reason}; give all pairs of one corpus: sbert pairs VECTORS "
                "--threshold T"
            )
        return found

    @staticmethod
    def clusters(place: str | Path) -> "ClustersArtifact":
        """Clusters; WrongKind for another kind."""
        return _open_kind(place, CLUSTERS)

    @staticmethod
    def index(place: str | Path) -> "IndexArtifact":
        """An index; WrongKind for another kind."""
        return _open_kind(place, INDEX)

    @staticmethod
    def shards(place: str | Path) -> "ShardsArtifact":
        """Training shards; WrongKind for another kind."""
        return _open_kind(place, SHARDS)

    @property
    def folder(self) -> str:
        """The published data folder, for any Parquet reader.

        ScatteredArtifact where it does not hold all data files: after an update in an object store.
        """
        if not self.manifest.has_own_folder:
            raise ScatteredArtifact(self.uri, self.manifest.num_generations)
        return f"{self.uri}/{DATA}/{self.manifest.generation}"

    @property
    def files(self) -> list[str]:
        """Paths or URIs of all data files in order, for any Parquet reader that takes a list."""
        return [f"{self.uri}/{file.path}" for file in self.manifest.files]

    @property
    def rows(self) -> int:
        return self.manifest.rows

    @property
    def row_ranges(self) -> list[RowRange]:
        """All rows, file by file."""
        return [
            RowRange(file.path, file.sha256, file.rows) for file in self.manifest.files if file.rows
        ]

    def table(self: "VectorsArtifact", name: str = "a") -> VectorTable:
        """All rows of vectors by number. name: what a join calls this side."""
        scale = self.manifest.settings.scale
        return VectorTable(name, self.uri, scale, tuple(self.row_ranges))

    def read(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Record batches of all rows in order, a few thousand rows in memory at a time."""
        return self._batches(self.manifest.files, columns)

    def quarantined(self) -> Iterator[pa.RecordBatch]:
        """Rows that have no result, with reasons."""
        return self._batches(self.manifest.quarantine, None)

    def sidecars(self, folder: str) -> Iterator[pa.RecordBatch]:
        """Rows of a list that goes with the data."""
        files = [file for file in self.manifest.sidecars if file.path.startswith(f"{folder}/")]
        return self._batches(files, None)

    def _batches(
        self, files: Sequence[DataFile], columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        storage = storage_at(self.uri)
        for file in files:
            yield from stream_part(storage, file.path, columns, READ_ROWS)


AnyArtifact: TypeAlias = Artifact[AnyManifest]
VectorsArtifact: TypeAlias = Artifact[VectorsManifest]
PairsArtifact: TypeAlias = Artifact[PairsManifest]
ClustersArtifact: TypeAlias = Artifact[ClustersManifest]
IndexArtifact: TypeAlias = Artifact[IndexManifest]
ShardsArtifact: TypeAlias = Artifact[ShardsManifest]


def typed(
    manifest: AnyManifest, kind: Kind[Settings, Inputs, Metrics], place: str, remedy: str
) -> Manifest[Settings, Inputs, Metrics]:
    """The manifest as one of this kind; WrongKind, with the remedy, where it is of another."""
    if manifest.kind != kind.name:
        raise WrongKind(place, manifest.kind, kind.name, remedy)
    return cast("Manifest[Settings, Inputs, Metrics]", manifest)


def published_place(out: str, manifest: AnyManifest) -> str:
    """Where a report says that the result is: the data folder, or the artifact if it has none."""
    out = out.rstrip("/")
    return f"{out}/{DATA}/{manifest.generation}" if manifest.has_own_folder else out


def other_pairs(manifest: PairsManifest) -> str | None:
    """Why these are not all pairs of one corpus; None if they are."""
    if manifest.inputs.b is not None:
        return "of two corpora"
    return None if manifest.settings.top_k is None else "of nearest rows"


def _open_kind(
    place: str | Path, kind: Kind[Settings, Inputs, Metrics]
) -> Artifact[Manifest[Settings, Inputs, Metrics]]:
    found = Artifact.open(place)
    remedy = f"make some with sbert {kind.command}"
    return Artifact(found.uri, typed(found.manifest, kind, str(place), remedy))
