"""Pairs of a smaller vectors artifact + new rows -> pairs of the grown one.

In:  a published pairs artifact, and vectors of which some files are new and some may be gone.
Out: the old pairs whose rows are still there, and what is left to join: new rows with all.

Files are known by their sha256: the rows of a file that is not known are new, those of a file that
is no longer there are gone.
"""

import logging
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray

from pipelines.artifacts.certificate import reaches
from pipelines.artifacts.manifest import DataFile, Manifest
from pipelines.pairs import blocks as plan
from pipelines.pairs.exact import Found
from pipelines.pairs.identity import Goal
from pipelines.pairs.setup import Ground, digests_of
from pipelines.runtime.progress import polled, progress
from pipelines.runtime.tasks import in_order
from sbert_core.corpus.published import DATA
from sbert_core.join.duplicates import LARGEST
from sbert_core.join.edges import is_written
from sbert_core.large_strings import wide_array, wide_schema
from sbert_core.storage import Storage
from sbert_core.vectors.reader import check_part, part_table
from sbert_core.vectors.table import VectorTable
from workers.pairs.exact import LargeGroups, OldPart, join_part
from workers.pairs.join_job import JoinJob
from workers.pairs.write import filter_pairs

log = logging.getLogger(__name__)

SAMPLED_FILES = 2
MOST_NEW = 0.5  # of all rows; with more, joining everything costs no more


@dataclass(frozen=True, slots=True)
class Growth:
    """What stays of an earlier join, and which rows it did not know."""

    before: Manifest
    known: tuple[str, ...]  # files of the vectors, by sha256
    has_gone: bool

    @classmethod
    def of(cls, goal: Goal, current: Manifest | None) -> "Growth | None":
        """None if there is nothing to grow from."""
        if current is None or goal.spec.against is not None or goal.spec.top_k is not None:
            return None
        if any(current.spec.get(name) != value for name, value in goal.options.items()):
            return None
        if goal.spec.method == "exact" and current.spec["method"] != "exact":
            return None
        if set(current.made_from) != {"a"}:
            return None
        old = set(current.made_from["a"]["files"])
        files = goal.vectors.manifest.files
        known = tuple(file.sha256 for file in files if file.sha256 in old)
        new_rows = sum(file.rows for file in files if file.sha256 not in old)
        if not known or new_rows > MOST_NEW * goal.vectors.rows:
            return None
        has_gone = not old <= set(known)  # several files without rows have one sha256
        if has_gone and current.beside:
            log.info("joining anew: rows are gone, and some may be of a group above 1,000 rows")
            return None
        if (certificate := current.facts["certificate"]) is not None:
            if has_gone or not reaches(certificate, goal.spec.recall):
                log.info("joining anew: the certificate of before does not speak for these pairs")
                return None
        return cls(current, known, has_gone)

    def sides(self, whole: VectorTable) -> tuple[VectorTable, VectorTable]:
        """New rows, and rows that were joined before."""
        is_old = [piece.sha256 in self.known for piece in whole.pieces]
        pieces = list(zip(whole.pieces, is_old, strict=True))
        new = tuple(piece for piece, old in pieces if not old)
        old = tuple(piece for piece, old in pieces if old)
        return replace(whole, name="new", pieces=new), replace(whole, name="old", pieces=old)

    def large_groups(self, storage: Storage) -> LargeGroups | None:
        """Rows that stand for groups above 1,000 rows, and those they stand for."""
        if not self.before.beside:
            return None
        tables = [part_table(storage, file.path) for file in self.before.beside]
        rows = pa.concat_tables(tables)
        rows = rows.cast(wide_schema(rows.schema)).combine_chunks()
        is_other = pc.not_equal(rows["id"], rows["representative"])
        standing = pc.unique(rows["representative"])
        return LargeGroups(standing, wide_array(rows["id"].filter(is_other)))

    def distinct_rows(self, old: VectorTable, num_added: int) -> int:
        """How many vectors differ. num_added: distinct new ones that are not among the old."""
        if self.has_gone:
            return len(np.unique(digests_of(old))) + num_added
        return self.before.facts["distinct"]["a"] + num_added

    def kept_files(self, job: JoinJob, old: VectorTable) -> list[DataFile]:
        """Old pairs in the new generation: as they are, or without those of rows that are gone."""
        if not self.has_gone:
            return [_linked(job.storage, file, job.folder) for file in self.before.files]
        calls = [(job, old, file.path, number) for number, file in enumerate(self.before.files)]
        made = in_order(filter_pairs, calls)
        return [DataFile(**file) for file in made if file is not None]

    def kept_groups(self, job: JoinJob) -> list[DataFile]:
        folder = job.folder.replace(f"{DATA}/", "groups/", 1)
        return [_linked(job.storage, file, folder) for file in self.before.beside]


def edges_across(across: Ground, parts: list[OldPart], large: LargeGroups | None) -> Found:
    """New rows with all old ones, a task for each old file."""
    job = across.job
    starts = plan.part_starts(across.blocks_a)
    todo = [part for part in parts if not is_written(job.storage, part.edges_name(job))]
    turn, groups = ray.put(across.turn), ray.put(large)
    left = sum(block.size for block in across.blocks_a) * sum(p.piece.size for p in todo)
    by = f"{len(todo)} files of known rows"
    with progress("pairs", left, by=by, unit="pairs") as advance, polled(job.run, advance):
        in_order(join_part, [(job, across.blocks_a, p, turn, starts, groups) for p in todo])
    names = [part.edges_name(job) for part in parts]
    return Found(starts, [names] * len(starts))


def num_added(across: Ground, parts: list[OldPart]) -> int | None:
    """Distinct new vectors that are not among the old; None if a group exceeds 1,000 rows."""
    job = across.job
    own = across.alike[job.a.name]
    equal = np.concatenate([part.equal_rows(job) for part in parts])
    size = own.count + np.bincount(
        np.searchsorted(own.first, equal[:, 0]), equal[:, 1], len(own.count)
    )
    return None if (size > LARGEST).any() else int((size == own.count).sum())


def old_parts(old: VectorTable) -> list[OldPart]:
    firsts = np.cumsum([0, *(piece.num_rows for piece in old.pieces)]).tolist()
    return [OldPart(n, piece, firsts[n]) for n, piece in enumerate(old.pieces)]


def few_files(side: VectorTable) -> VectorTable:
    """Some of a side, to draw a sample from: a file must be read whole for one row of it."""
    step = -(-len(side.pieces) // SAMPLED_FILES)
    return replace(side, pieces=side.pieces[step // 2 :: step])


def _linked(storage: Storage, file: DataFile, folder: str) -> DataFile:
    path = f"{folder}/{file.path.rpartition('/')[2]}"
    check_part(storage, file.path, file.sha256)
    storage.link(file.path, path)
    return replace(file, path=path)
