"""The one run that may write an output: claim it, write below it, publish by the manifest.

    OUT/_manifest.json      the commit: files with rows and sha256, spec, what it was made from
    OUT/data/<generation>/  data files and nothing else: what a plain reader opens
    OUT/_quarantine/ _work/ _run.json ...   everything else, under names that begin with _

In:  files a job has written below a generation of its own.
Out: a published artifact, or the one that was there before.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from pipelines.artifacts.errors import IncompleteArtifact
from pipelines.artifacts.kinds import Kind
from pipelines.artifacts.layout import FOLDERS, RUN, WORK
from pipelines.artifacts.manifest import AnyManifest, Manifest, read_manifest
from pipelines.artifacts.reader import typed
from sbert_core.corpus.published import GENERATION, MANIFEST
from sbert_core.errors import TransientError
from sbert_core.storage import Storage, StoreError, storage_at

Settings = TypeVar("Settings")
Inputs = TypeVar("Inputs")
Metrics = TypeVar("Metrics")


def _lock(storage: Storage) -> AbstractContextManager[None]:
    return storage.lock()


class Writer:
    """The one run that may write an output. Made by `Writer.claim`.

    current: the manifest that was published when the output was claimed; None for a new output.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        found = storage.stat(MANIFEST)
        self._version = found.version if found else None
        self.current = read_manifest(storage.read(MANIFEST), storage.uri) if found else None

    @classmethod
    @contextmanager
    def claim(
        cls, place: str | Path, lock: Callable[[Storage], AbstractContextManager[None]] = _lock
    ) -> Iterator["Writer"]:
        """Hold the output for as long as the block runs.

        lock: takes the lock of a storage; the plain one raises BusyError if another run has it.
        """
        storage = storage_at(place)
        with ExitStack() as stack:
            try:
                stack.enter_context(lock(storage))
            except StoreError:
                raise
            except OSError as error:
                reason = error.strerror or error
                raise TransientError(f"out {place} cannot be written: {reason}") from error
            yield cls(storage)

    def current_of(
        self, kind: Kind[Settings, Inputs, Metrics]
    ) -> Manifest[Settings, Inputs, Metrics] | None:
        """The published manifest; WrongKind if it is of another kind: that is not replaced."""
        if self.current is None:
            return None
        return typed(self.current, kind, self.storage.uri, "choose another --out")

    def publish(
        self, manifest: AnyManifest, *, rows_in: int, rows_out: int, run: Mapping[str, object]
    ) -> None:
        """Make the manifest's generation the artifact.

        rows_in: rows of the input, counted where they were read. rows_out: rows that have a
        result, counted in the files. run: times and the like, for `_run.json`. IncompleteArtifact
        if rows in are not rows out and those quarantined; ConflictError if another run published
        meanwhile.
        """
        found = rows_out + manifest.quarantined
        if found != rows_in:
            raise IncompleteArtifact(self.storage.uri, found, rows_in)
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
