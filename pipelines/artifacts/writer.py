"""The one run that may write an output: claim it, write below it, publish by the manifest.

    OUT/_manifest.json      the commit: files with rows and sha256, spec, what it was made from
    OUT/data/<generation>/  data files and nothing else: what a plain reader opens
    OUT/_quarantine/ _work/ _run.json ...   everything else, under names that begin with _

In:  files a job has written below a generation of its own.
Out: a published artifact, or the one that was there before.
"""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pipelines.artifacts.errors import IncompleteArtifact
from pipelines.artifacts.layout import FOLDERS, RUN, WORK
from pipelines.artifacts.manifest import Manifest
from pipelines.runtime.wait_policy import current_patience
from sbert_core.corpus.published import GENERATION, MANIFEST
from sbert_core.errors import Unsettled
from sbert_core.storage import BusyError, Storage, StoreError, storage_at

log = logging.getLogger(__name__)

BUSY_POLL_SECONDS = 2.0


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
