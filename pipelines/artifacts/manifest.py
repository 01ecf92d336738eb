"""The manifest: what a published artifact lists and states of itself.

In:  the JSON of `_manifest.json`.
Out: Manifest, its three parts as the types of its kind (`kinds.py`); the same bytes again from
     `to_json`. A manifest of a later format is refused; one without a number has format 1.
"""

import json
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Generic, TypeAlias

from pipelines.artifacts.errors import BrokenArtifact, NewerFormat
from pipelines.artifacts.kinds import (
    KINDS,
    ClustersInputs,
    ClustersMetrics,
    ClustersSettings,
    IndexInputs,
    IndexMetrics,
    IndexSettings,
    Inputs,
    Kind,
    Metrics,
    PairsInputs,
    PairsMetrics,
    PairsSettings,
    Settings,
    ShardsMetrics,
    ShardsSettings,
    VectorsInputs,
    VectorsMetrics,
    VectorsSettings,
)
from sbert_core.corpus.published import DATA, MANIFEST
from sbert_core.data_file import DataFile
from sbert_core.json_record import Count, decode, encode

FORMAT = 1
LIBRARIES = ("sbert-mill", "torch", "transformers", "tokenizers", "pyarrow", "numpy", "ray")


def library_versions() -> dict[str, str]:
    """Versions that may change a vector's last bits or a file's bytes."""
    return {name: version(name) for name in LIBRARIES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(Generic[Settings, Inputs, Metrics]):
    """What is published: files, and how, of what and with which results they were made.

    metrics depend on the inputs and settings alone. sidecars: lists that go with the data, in
    folders of their own.
    """

    kind: str
    generation: str
    schema: dict[str, str]
    rows: int
    quarantined: int
    files: tuple[DataFile, ...]
    quarantine: tuple[DataFile, ...] = ()
    settings: Settings
    inputs: Inputs
    metrics: Metrics
    versions: dict[str, str] = field(default_factory=library_versions)
    sidecars: tuple[DataFile, ...] = ()

    @property
    def listed(self) -> tuple[DataFile, ...]:
        """Every file of the artifact."""
        return (*self.files, *self.quarantine, *self.sidecars)

    @property
    def num_generations(self) -> int:
        """Generations in whose folders the data files lie."""
        return len({tuple(file.path.split("/")[:2]) for file in self.files})

    @property
    def has_own_folder(self) -> bool:
        """Whether all data files lie in the folder of this generation."""
        folder = f"{DATA}/{self.generation}/"
        return all(file.path.startswith(folder) for file in self.files)

    def to_json(self) -> bytes:
        """The bytes of `_manifest.json`."""
        envelope = Envelope(
            format=FORMAT,
            kind=self.kind,
            generation=self.generation,
            schema=self.schema,
            rows=self.rows,
            quarantined=self.quarantined,
            files=self.files,
            quarantine=self.quarantine,
            spec=encode(self.settings),
            made_from=encode(self.inputs),
            facts=encode(self.metrics),
            versions=self.versions,
            beside=self.sidecars,
        )
        return (json.dumps(encode(envelope), indent=1, ensure_ascii=False) + "\n").encode()


AnyManifest: TypeAlias = Manifest[object, object, object]
VectorsManifest: TypeAlias = Manifest[VectorsSettings, VectorsInputs, VectorsMetrics]
IndexManifest: TypeAlias = Manifest[IndexSettings, IndexInputs, IndexMetrics]
PairsManifest: TypeAlias = Manifest[PairsSettings, PairsInputs, PairsMetrics]
ClustersManifest: TypeAlias = Manifest[ClustersSettings, ClustersInputs, ClustersMetrics]
ShardsManifest: TypeAlias = Manifest[ShardsSettings, dict[str, object], ShardsMetrics]


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The JSON of a manifest of any kind, key by key in the order of the file."""

    format: Count = 1
    kind: str
    generation: str
    schema: dict[str, str]
    rows: Count
    quarantined: Count
    files: tuple[DataFile, ...]
    quarantine: tuple[DataFile, ...]
    spec: dict[str, object]
    made_from: dict[str, object]
    facts: dict[str, object]
    versions: dict[str, str]
    beside: tuple[DataFile, ...]


def read_manifest(data: bytes, place: str | Path = MANIFEST) -> AnyManifest:
    """A manifest from its bytes.

    place: of the artifact, for error messages. BrokenArtifact where it cannot be one; NewerFormat
    where a later version wrote it.
    """
    try:
        fields = json.loads(data)
        if isinstance(fields, dict) and isinstance(number := fields.get("format"), int):
            if number > FORMAT:
                raise NewerFormat(str(place), number, FORMAT)
        found = decode(Envelope, fields, MANIFEST)
        kind = KINDS.get(found.kind)
        _check(found, kind)
        return Manifest(
            kind=found.kind,
            generation=found.generation,
            schema=found.schema,
            rows=found.rows,
            quarantined=found.quarantined,
            files=found.files,
            quarantine=found.quarantine,
            settings=decode(kind.settings if kind else object, found.spec, f"{MANIFEST}: spec"),
            inputs=decode(
                kind.inputs if kind else object, found.made_from, f"{MANIFEST}: made_from"
            ),
            metrics=decode(kind.metrics if kind else object, found.facts, f"{MANIFEST}: facts"),
            versions=found.versions,
            sidecars=found.beside,
        )
    except NewerFormat:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise BrokenArtifact(str(place), str(error)) from None


def _check(found: Envelope, kind: Kind[object, object, object] | None) -> None:
    """Refuse names of files that lie elsewhere, and rows that the files do not have."""
    listed = (*found.files, *found.quarantine, *found.beside)
    for name in (*(file.path for file in listed), found.generation):
        parts = PurePosixPath(name).parts
        if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
            raise ValueError(f"{MANIFEST} lists {name[:60]!r}, a path outside the artifact")
    if kind is None:
        return
    for column in kind.schema:
        if column not in found.schema:
            raise ValueError(f"{MANIFEST}: schema has no {column!r}")
    if kind.is_counted and sum(file.rows for file in found.files) != found.rows:
        raise ValueError(f"{MANIFEST}: {found.rows} rows are not those of its files")
    if kind.is_counted and not found.files:
        raise ValueError(f"{MANIFEST} lists no file")
