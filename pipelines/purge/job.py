"""Rows that must be forgotten -> vectors and indexes without a trace of them.

In:  ids, and the places of vectors and indexes.
Out: vectors without these rows, as their only generation; no index that held one of them. Nothing
     else of the artifact is left: no earlier generation, no unfinished work, no remembered failure.
     All that is left is read again at the end, from the store, and searched for the ids.

An index is removed as a whole: a graph keeps the vectors of rows that are removed from it, and
only building it again gets rid of them. Safe under kills: every step can be repeated, and the same
command goes on. Gives up: readers that hold the last manifest, whose files are gone.
"""

from dataclasses import dataclass, replace

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
from pipelines.runtime.stage import Stage, StageReport, run_stage
from pipelines.runtime.timing import StageTimer
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
class PurgedArtifact(StageReport):
    """What was done to one artifact.

    kind: None where nothing was published. is_removed: an index that held some of the rows.
    """

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
    stages = [PurgeStage(PurgeTarget(place), ids, spec.address) for place in spec.artifacts]
    return PurgeReport(num_ids=len(ids), artifacts=tuple(run_stage(stage) for stage in stages))


def _check(place: str) -> None:
    """Refuse what is no artifact, and kinds that cannot be purged."""
    storage = storage_at(place)
    if storage.stat(MANIFEST) is not None:
        current = Writer(storage).current
        if current is not None and current.kind not in (VECTORS.name, INDEX.name):
            raise CannotPurge(place, current.kind)
    elif storage.stat(PURGED) is None and next(storage.list(WORK), None) is None:
        raise NotAnArtifact(place, MANIFEST)


@dataclass(frozen=True, slots=True)
class PurgeTarget:
    """One of the artifacts."""

    out: str


class PurgeStage(Stage[PurgedArtifact, PurgedArtifact]):
    """One artifact without the rows of some ids. There is always something to do: the proof."""

    def __init__(self, spec: PurgeTarget, ids: pa.Array, address: str | None) -> None:
        self._spec, self._ids, self.address = spec, ids, address

    @property
    def spec(self) -> PurgeTarget:
        return self._spec

    def find_published(self, out: Writer) -> PurgedArtifact | None:
        return None

    def work(self, out: Writer, timer: StageTimer) -> PurgedArtifact:
        with timer.phase("purge"):
            left, rows_removed, files_written = self._publish_without(out)
            # A remembered failure may name a row.
            out.storage.delete([OUTCOME])
            if left is None:
                out.storage.delete([RUN, CARD])
                out.remove_all_but(set())
            else:
                out.remove_all_but(listed_paths(left))
                out.storage.delete([PURGED])
        with timer.phase("proof"):
            proof = prove(out.storage, left, self._ids)
        return PurgedArtifact(
            out=self.place,
            kind=None if out.current is None else out.current.kind,
            rows_removed=rows_removed,
            files_written=files_written,
            is_removed=left is None and out.current is not None,
            proof=proof,
        )

    def _publish_without(self, out: Writer) -> tuple[AnyManifest | None, int, int]:
        """What is published now, how many rows that cost, and how many files were written."""
        current = out.current
        if current is None:
            return None, 0, 0
        counts = count_found(out.storage, current, self._ids)
        num_found = sum(counts.values())
        if not num_found:
            return current, 0, 0
        if current.kind == INDEX.name:
            # In this order, so that a rerun after a kill finds what to do.
            out.storage.put(PURGED, b'{"kind": "index"}\n')
            out.storage.delete([MANIFEST])
            return None, num_found, 0
        left = purged_vectors(out, counts, self._ids)
        out.put_manifest(left)
        return left, num_found, sum(found > 0 for found in counts.values())

    def report(self, published: PurgedArtifact, *, is_new: bool, seconds: float) -> PurgedArtifact:
        return replace(published, seconds=seconds)
