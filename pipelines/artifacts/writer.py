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
from pipelines.artifacts.layout import FOLDERS, REPLACED, RUN, WORK
from pipelines.artifacts.manifest import AnyManifest, Manifest, read_manifest
from pipelines.artifacts.reader import typed
from pipelines.artifacts.retention import (
    files_in_use,
    listed_paths,
    record_replaced,
    remove_unused,
    remove_void_records,
)
from sbert_core.corpus.published import MANIFEST
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
        self._published = storage.read(MANIFEST) if found else None
        self.current = (
            None if self._published is None else read_manifest(self._published, storage.uri)
        )

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
        self.replace(manifest)

    def replace(self, manifest: AnyManifest) -> None:
        """Make a manifest the published one, then remove what nobody needs any more.

        ConflictError if another run published meanwhile.
        """
        data = manifest.to_json()
        if data != self._published:
            record_replaced(self.storage, data, self._published)
        self.storage.put_if(MANIFEST, data, self._version)
        # Only the one that published removes anything: a run that lost its place deletes nothing.
        self.tidy(data)

    def put_manifest(self, manifest: AnyManifest) -> None:
        """Make a manifest the published one; remove nothing.

        ConflictError if another run published meanwhile.
        """
        self.storage.put_if(MANIFEST, manifest.to_json(), self._version)

    def remove_all_but(self, listed: set[str]) -> None:
        """Remove all else, also what readers of the last manifest need: rows to be forgotten."""
        self.storage.delete([WORK, REPLACED])
        remove_unused(self.storage, listed)

    def tidy(self, published: bytes) -> None:
        """Remove work in progress, and files that are not in use; nothing of anybody else.

        published: the bytes of the manifest. What is in use: see `pipelines.artifacts.retention`.
        """
        in_use = files_in_use(self.storage, published)
        if in_use is not None:
            remove_unused(self.storage, in_use)
        self.storage.delete([WORK])
        # Last: while the record of a first manifest is there, a rerun ends what is left to do.
        remove_void_records(self.storage, published)

    def tidy_after_kill(self) -> None:
        """End the work of a run that was killed after it had published."""
        if self._published is not None:
            self.tidy(self._published)

    def discard(self, generation: str) -> None:
        """Remove what was written for a generation that will not be published.

        An earlier generation of this name may have been published; its files that are in use stay.
        """
        in_use: set[str] = set()
        if self._published is not None and self.current is not None:
            in_use = files_in_use(self.storage, self._published) or listed_paths(self.current)
        self.storage.delete([f"{WORK}/{generation}"])
        remove_unused(self.storage, in_use, [f"{folder}/{generation}" for folder in FOLDERS])
