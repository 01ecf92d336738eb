"""Folders that are whole or not there: generations of files, and a manifest as the commit.

    OUT/_manifest.json      the commit: files with rows and sha256, spec, what it was made from
    OUT/data/<generation>/  data files and nothing else: what a plain reader opens
    OUT/_quarantine/ _work/ _run.json ...   everything else, under names that begin with _

In:  files a job has written below a generation of its own.
Out: a published artifact, or the one that was there before.
"""

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.manifest_shapes import check_manifest
from pipelines.patience import current_patience
from sbert_core.corpus.published import DATA, GENERATION, MANIFEST
from sbert_core.errors import Unsettled
from sbert_core.storage import BusyError, Storage, StoreError, storage_at
from sbert_core.vectors.pieces import Piece
from sbert_core.vectors.reading import part_batches

log = logging.getLogger(__name__)

RUN = "_run.json"
WORK = "_work"
QUARANTINE = "_quarantine"
GROUPS = "groups"  # of pairs: rows that are all alike
KEEP = "keep"  # of clusters: ids that are kept
CHANGES = "changes"  # of clusters: what an update decided otherwise
FOLDERS = (DATA, QUARANTINE, GROUPS, KEEP, CHANGES)
READ_ROWS = 8192
BUSY_POLL_SECONDS = 2.0
LIBRARIES = ("sbert-mill", "torch", "transformers", "tokenizers", "pyarrow", "numpy", "ray")


def library_versions() -> dict[str, str]:
    """Versions that may change a vector's last bits or a file's bytes."""
    return {name: version(name) for name in LIBRARIES}


class IncompleteArtifact(RuntimeError):
    """Rows are missing; nothing was published."""


class PartialWork(RuntimeError):
    """The run ended early; what it did is saved and the same command goes on."""


class GateFailed(RuntimeError):
    """The result is not good enough by a measure the user set; nothing was published."""


class TargetMissed(GateFailed):
    """No effort reaches the recall that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of an artifact; `source` says what it was made from."""

    path: str
    rows: int
    sha256: str
    bytes: int
    source: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a published artifact says of itself.

    facts: counts and measurements that depend on the input and the spec alone.
    beside: lists that go with the data, in folders of their own.
    """

    kind: str
    generation: str
    schema: dict[str, str]
    rows: int
    quarantined: int
    files: tuple[DataFile, ...]
    quarantine: tuple[DataFile, ...]
    spec: dict[str, Any]
    made_from: dict[str, Any]
    facts: dict[str, Any]
    versions: dict[str, str]
    beside: tuple[DataFile, ...] = ()

    @property
    def listed(self) -> tuple[DataFile, ...]:
        return (*self.files, *self.quarantine, *self.beside)

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, place: str | Path = "") -> "Manifest":
        """place: of the artifact, for what is said of a broken one."""
        try:
            fields = json.loads(data)
            check_manifest(fields, MANIFEST)
            for name in ("files", "quarantine", "beside"):
                fields[name] = tuple(DataFile(**file) for file in fields[name])
            return cls(**fields)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{place or MANIFEST} is broken or of another version ({error}); make the "
                "artifact again"
            ) from None


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


def _enter_when_free(stack: ExitStack, storage: Storage) -> None:
    """Hold the output, after another run's end if the command is patient."""
    patience = current_patience()
    began = time.monotonic()
    while True:
        try:
            stack.enter_context(storage.lock())
            return
        except BusyError as error:
            waited = time.monotonic() - began
            if not patience.waits_for_others or waited > patience.seconds:
                raise
            if waited < BUSY_POLL_SECONDS:
                log.info("%s", error)
            time.sleep(BUSY_POLL_SECONDS)


class Writer:
    """The one run that may write an artifact. Made by `Writer.claim`."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        found = storage.stat(MANIFEST)
        self._version = found.version if found else None
        self.current = Manifest.from_json(storage.read(MANIFEST), storage.uri) if found else None

    @classmethod
    @contextmanager
    def claim(cls, place: str | Path) -> Iterator["Writer"]:
        """Hold the output; BusyError if another run does."""
        storage = storage_at(place)
        with ExitStack() as stack:
            try:
                _enter_when_free(stack, storage)
            except StoreError:
                raise
            except OSError as error:
                reason = error.strerror or error
                raise Unsettled(f"out {place} cannot be written: {reason}") from error
            yield cls(storage)

    def refuse_other(self, kind: str) -> None:
        """An output of another kind is not replaced."""
        if self.current is not None and self.current.kind != kind:
            raise ValueError(
                f"{self.storage.uri} holds {self.current.kind}, not {kind}; choose another --out"
            )

    def publish(self, manifest: Manifest, *, rows_in: int, run: dict[str, Any]) -> None:
        """Make the generation the artifact, if every row is accounted for and nobody else did."""
        found = manifest.facts.get("documents", manifest.rows) + manifest.quarantined
        if found != rows_in:
            raise IncompleteArtifact(
                f"{self.storage.uri}: {found} of {rows_in} rows are accounted for; "
                "nothing was published, repeat the command"
            )
        self.storage.put(RUN, json.dumps(run, indent=1).encode())
        self.storage.put_if(MANIFEST, manifest.to_json(), self._version)
        # Only the one that published removes anything: a run that lost its place deletes nothing.
        listed = {file.path for file in manifest.listed}
        for folder in FOLDERS:
            here = self.storage.list(f"{folder}/{manifest.generation}")
            self.storage.delete([stat.name for stat in here if stat.name not in listed])
        previous = {self.current.generation} if self.current else set()
        self.tidy({manifest.generation, *previous})

    def tidy(self, kept: set[str]) -> None:
        """Remove work in progress and every generation but these; nothing of anybody else."""
        for folder in FOLDERS:
            names = {stat.name.split("/")[1] for stat in self.storage.list(folder)}
            others = [name for name in names - kept if GENERATION.fullmatch(name)]
            self.storage.delete([f"{folder}/{name}" for name in others])
        self.storage.delete([WORK])
