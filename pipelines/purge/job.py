"""Rows that must be forgotten -> vectors and indexes without a trace of them.

In:  ids, and the places of vectors and indexes.
Out: vectors without these rows, as their only generation; no index that held one of them. Nothing
     else of the artifact is left: no earlier generation, no unfinished work, no remembered failure.
     All that is left is read again at the end, from the store, and searched for the ids.

An index is removed as a whole: a graph keeps the vectors of rows that are removed from it, and
only building it again gets rid of them. Safe under kills: every step can be repeated, and the same
command goes on. Gives up: readers that hold the last manifest, whose files are gone.
"""

from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from pipelines.artifacts.errors import NotAnArtifact
from pipelines.artifacts.kinds import INDEX, VECTORS
from pipelines.artifacts.layout import PURGED, RUN, WORK
from pipelines.artifacts.manifest import AnyManifest
from pipelines.artifacts.retention import listed_paths
from pipelines.artifacts.sidecars import CARD
from pipelines.artifacts.writer import Writer
from pipelines.purge.ids import read_ids
from pipelines.purge.proof import Proof, prove
from pipelines.purge.rows import count_found, purged_vectors
from pipelines.purge.spec import PurgeSpec
from pipelines.runtime.failure_cache import OUTCOME
from pipelines.runtime.readable import ReadableReport
from pipelines.runtime.session import job_session
from pipelines.runtime.wait_policy import lock_when_free
from sbert_core.corpus.published import MANIFEST
from sbert_core.storage import storage_at


class CannotPurge(ValueError):
    """An artifact that names rows in a way that does not allow to leave some out."""

    exit_code = 2

    def __init__(self, place: str, kind: str) -> None:
        super().__init__(
            f"{place} holds {kind}, which follow from all rows of vectors; purge the vectors, "
            f"remove {place} and make it again"
        )
        self.place, self.kind = place, kind


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgedArtifact(ReadableReport):
    """What was done to one artifact.

    kind: None where nothing was published. is_removed: an index that held some of the rows.
    """

    out: str
    kind: str | None
    rows_removed: int
    files_written: int
    is_removed: bool
    proof: Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport(ReadableReport):
    """All artifacts in the order in which they were given."""

    num_ids: int
    artifacts: tuple[PurgedArtifact, ...]


def run(spec: PurgeSpec) -> PurgeReport:
    """Purge one artifact after another; nothing is touched if one of them is refused."""
    ids = read_ids(spec)
    for place in spec.artifacts:
        _check(place)
    done = tuple(_purge(place, ids, spec.address) for place in spec.artifacts)
    return PurgeReport(num_ids=len(ids), artifacts=done)


def _check(place: str) -> None:
    """Refuse what is no artifact, and kinds that cannot be purged."""
    storage = storage_at(place)
    if storage.stat(MANIFEST) is not None:
        current = Writer(storage).current
        if current is not None and current.kind not in (VECTORS.name, INDEX.name):
            raise CannotPurge(place, current.kind)
    elif storage.stat(PURGED) is None and next(storage.list(WORK), None) is None:
        raise NotAnArtifact(place, MANIFEST)


def _purge(place: str, ids: pa.Array, address: str | None) -> PurgedArtifact:
    with ExitStack() as stack:
        out = stack.enter_context(Writer.claim(place, lock_when_free))
        stack.enter_context(job_session(place, address))
        left, rows_removed, files_written = _without_rows(out, ids)
        # A remembered failure may name a row.
        out.storage.delete([OUTCOME])
        if left is None:
            out.storage.delete([RUN, CARD])
            out.remove_all_but(set())
        else:
            out.remove_all_but(listed_paths(left))
            out.storage.delete([PURGED])
        return PurgedArtifact(
            out=place,
            kind=None if out.current is None else out.current.kind,
            rows_removed=rows_removed,
            files_written=files_written,
            is_removed=left is None and out.current is not None,
            proof=prove(out.storage, left, ids),
        )


def _without_rows(out: Writer, ids: pa.Array) -> tuple[AnyManifest | None, int, int]:
    """What is published after the purge, how many rows that cost, and how many new files."""
    current = out.current
    if current is None:
        return None, 0, 0
    counts = count_found(out.storage, current, ids)
    num_found = sum(counts.values())
    if not num_found:
        return current, 0, 0
    if current.kind == INDEX.name:
        # In this order, so that a rerun after a kill finds what to do.
        out.storage.put(PURGED, b'{"kind": "index"}\n')
        out.storage.delete([MANIFEST])
        return None, num_found, 0
    purged = purged_vectors(out, counts, ids)
    out.put_manifest(purged)
    return purged, num_found, sum(found > 0 for found in counts.values())
