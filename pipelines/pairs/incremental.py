"""Pairs of an earlier vectors artifact + new rows -> pairs of the changed one.

In:  a published pairs artifact, and vectors of which some files are new and some may be gone.
Out: the known pairs whose rows are still there, and the edges of new rows with all known ones.

Files are known by their sha256: the rows of a file that is not known are new, those of a file that
is no longer there are gone.
"""

import logging
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray

from pipelines.artifacts.manifest import PairsManifest
from pipelines.pairs import blocks as plan
from pipelines.pairs.exact import JoinResult, count_finished, finished_names
from pipelines.pairs.identity import PairsIdentity
from pipelines.pairs.setup import JoinSetup, digest_rows
from pipelines.pairs.spec import JoinMethod
from pipelines.runtime.progress import poll_progress, progress
from pipelines.runtime.tasks import in_order
from sbert_core.corpus.published import DATA
from sbert_core.data_file import DataFile
from sbert_core.join.duplicates import MAX_EXPANDED_GROUP
from sbert_core.json_record import encode
from sbert_core.large_strings import widen_array, widen_schema
from sbert_core.storage import Storage
from sbert_core.vectors.reader import check_part, read_part
from sbert_core.vectors.table import VectorTable
from workers.pairs.exact import KnownPart, LargeGroups, NewRows, join_known_part
from workers.pairs.join_job import JoinJob
from workers.pairs.write import filter_pairs

log = logging.getLogger(__name__)

SAMPLED_FILES = 2
MAX_NEW_SHARE = 0.5  # of all rows; with more, joining everything costs no more


@dataclass(frozen=True, slots=True)
class KeptPairs:
    """Pairs of an earlier generation in this one. num_pairs: counted apart from the files."""

    files: list[DataFile]
    num_pairs: int


@dataclass(frozen=True, slots=True)
class IncrementalJoin:
    """An earlier join that this one extends.

    previous: its manifest. known: files of the vectors that it joined, by sha256. has_gone: some of
    its files are no longer there.
    """

    previous: PairsManifest
    known: tuple[str, ...]
    has_gone: bool

    @classmethod
    def plan(
        cls, identity: PairsIdentity, current: PairsManifest | None
    ) -> "IncrementalJoin | None":
        """Extend the published pairs; None where everything must be joined anew.

        current: the published manifest of the output.
        """
        if current is None or identity.spec.against is not None or identity.spec.top_k is not None:
            return None
        known_options = encode(current.settings)
        if any(known_options[name] != value for name, value in identity.options.items()):
            return None
        if identity.spec.method is JoinMethod.EXACT and current.settings.method != "exact":
            return None
        if current.inputs.b is not None:
            return None
        old = set(current.inputs.a.files)
        files = identity.vectors.manifest.files
        known = tuple(file.sha256 for file in files if file.sha256 in old)
        new_rows = sum(file.rows for file in files if file.sha256 not in old)
        if not known or new_rows > MAX_NEW_SHARE * identity.vectors.rows:
            return None
        has_gone = not old <= set(known)  # several files without rows have one sha256
        if has_gone and current.sidecars:
            log.info("joining anew: rows are gone, and some may be of a group above 1,000 rows")
            return None
        if (certificate := current.metrics.certificate) is not None:
            if has_gone or not certificate.reaches(identity.spec.recall):
                log.info("joining anew: the former certificate does not hold for these pairs")
                return None
        return cls(current, known, has_gone)

    def sides(self, whole: VectorTable) -> tuple[VectorTable, VectorTable]:
        """New rows, and known rows: those that were joined before."""
        known = tuple(file for file in whole.row_ranges if file.sha256 in self.known)
        new = tuple(file for file in whole.row_ranges if file.sha256 not in self.known)
        return (
            replace(whole, name="new", row_ranges=new),
            replace(whole, name="old", row_ranges=known),
        )

    def large_groups(self, storage: Storage) -> LargeGroups | None:
        """Known groups above 1,000 equal rows; None if there are none."""
        if not self.previous.sidecars:
            return None
        tables = [read_part(storage, file.path) for file in self.previous.sidecars]
        rows = pa.concat_tables(tables)
        rows = rows.cast(widen_schema(rows.schema)).combine_chunks()
        is_other = pc.not_equal(rows["id"], rows["representative"])
        representatives = pc.unique(rows["representative"])
        return LargeGroups(representatives, widen_array(rows["id"].filter(is_other)))

    def count_distinct(self, known: VectorTable, num_added: int) -> int:
        """Distinct vectors of all rows. num_added: new ones that are not among the known."""
        if self.has_gone:
            return len(np.unique(digest_rows(known))) + num_added
        return self.previous.metrics.distinct["a"] + num_added

    def keep_pairs(self, job: JoinJob, known: VectorTable) -> KeptPairs:
        """Take known pairs into the new generation, without those of rows that are gone."""
        files = self.previous.files
        if not self.has_gone:
            linked = [_link_file(job.storage, file, job.folder) for file in files]
            return KeptPairs(linked, self.previous.rows)
        calls = [(job, known, file.path, number) for number, file in enumerate(files)]
        made = in_order(filter_pairs, calls)
        left = [result.file for result in made if result.file is not None]
        return KeptPairs(left, sum(result.num_kept for result in made))

    def keep_groups(self, job: JoinJob) -> list[DataFile]:
        """Take known groups above 1,000 equal rows into the new generation."""
        folder = job.folder.replace(f"{DATA}/", "groups/", 1)
        return [_link_file(job.storage, file, folder) for file in self.previous.sidecars]


def join_with_known(
    setup: JoinSetup, parts: list[KnownPart], large: LargeGroups | None
) -> JoinResult:
    """Join new rows with all known ones, a task for each known file.

    setup: of the new rows against the known. large: known groups above 1,000 equal rows.
    """
    job = setup.job
    starts = plan.part_starts(setup.blocks_a)
    names = [part.edges_name(job) for part in parts]
    [finished] = finished_names(job, [names])
    todo = [part for part in parts if part.edges_name(job) not in finished]
    left = sum(block.size for block in setup.blocks_a) * sum(p.piece.size for p in todo)
    by = f"{len(todo)} files of known rows"
    new = NewRows(setup.blocks_a, setup.rotation, starts, setup.written_groups, large)
    shared = ray.put(new)
    with progress("pairs", left, by=by, unit="pairs") as advance, poll_progress(job.run, advance):
        counts = in_order(join_known_part, [(job, shared, part) for part in todo])
    num_found = sum(count.pairs for count in counts)
    if finished:
        num_found += count_finished(job, [finished] * len(starts), ray.put(new.groups))
    return JoinResult(starts=starts, names=[names] * len(starts), num_pairs=num_found)


def count_added(setup: JoinSetup, parts: list[KnownPart]) -> int | None:
    """Distinct new vectors that are not among the known; None if a group exceeds 1,000 rows.

    setup, parts: as in `join_with_known`, which must have run.
    """
    job, own = setup.job, setup.groups_a
    equal = np.concatenate([part.equal_rows(job) for part in parts])
    size = own.count + np.bincount(
        np.searchsorted(own.first, equal[:, 0]), equal[:, 1], len(own.count)
    )
    return None if (size > MAX_EXPANDED_GROUP).any() else int((size == own.count).sum())


def known_parts(known: VectorTable) -> list[KnownPart]:
    """The files of known rows, with the number of the first row of each."""
    firsts = np.cumsum([0, *(piece.num_rows for piece in known.row_ranges)]).tolist()
    return [KnownPart(n, piece, firsts[n]) for n, piece in enumerate(known.row_ranges)]


def sample_files(side: VectorTable) -> VectorTable:
    """A few files of a side, to draw a sample from: for one row a whole file is read."""
    step = -(-len(side.row_ranges) // SAMPLED_FILES)
    return replace(side, row_ranges=side.row_ranges[step // 2 :: step])


def _link_file(storage: Storage, file: DataFile, folder: str) -> DataFile:
    path = f"{folder}/{file.path.rpartition('/')[2]}"
    check_part(storage, file.path, file.sha256)
    return replace(file, path=storage.carry_over(file.path, path))
