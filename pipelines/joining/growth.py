"""Pairs of a smaller vectors artifact + new rows -> pairs of the grown one.

In:  a published pairs artifact, and vectors of which some files are new and some may be gone.
Out: the old pairs whose rows are still there, and what is left to join: new rows with all.

Files are known by their sha256: the rows of a file that is not known are new, those of a file that
is no longer there are gone.
"""

import logging
from dataclasses import dataclass, replace

import numpy as np

from pipelines.artifacts import DATA, DataFile, Manifest
from pipelines.joining.goal import Goal
from pipelines.ray_tasks import in_order
from sbert_core.neighbours.alike import LARGEST
from sbert_core.storage import Storage
from workers.join_blocks import JoinJob, Side
from workers.pair_parts import filter_pairs

log = logging.getLogger(__name__)

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
            if has_gone or certificate["low"] < goal.spec.recall:
                log.info("joining anew: the certificate of before does not speak for these pairs")
                return None
        return cls(current, known, has_gone)

    def sides(self, whole: Side) -> tuple[Side, Side]:
        """New rows, and rows that were joined before."""
        is_old = [piece.sha256 in self.known for piece in whole.pieces]
        pieces = list(zip(whole.pieces, is_old, strict=True))
        new = tuple(piece for piece, old in pieces if not old)
        old = tuple(piece for piece, old in pieces if old)
        return replace(whole, name="new", pieces=new), replace(whole, name="old", pieces=old)

    def distinct_rows(self, new: np.ndarray, old: np.ndarray) -> int | None:
        """How many vectors differ, of two sides by digest.

        None if new rows join a group that is too large for pairs.
        """
        _, first, count = np.unique(
            np.concatenate([new, old]), return_index=True, return_counts=True
        )
        has_new = first < len(new)
        return None if (has_new & (count > LARGEST)).any() else len(count)

    def kept_files(self, job: JoinJob, old: Side) -> list[DataFile]:
        """Old pairs in the new generation: as they are, or without those of rows that are gone."""
        if not self.has_gone:
            return [_linked(job.storage, file, job.folder) for file in self.before.files]
        calls = [(job, old, file.path, number) for number, file in enumerate(self.before.files)]
        made = in_order(filter_pairs, calls)
        return [DataFile(**file) for file in made if file is not None]

    def kept_groups(self, job: JoinJob) -> list[DataFile]:
        folder = job.folder.replace(f"{DATA}/", "groups/", 1)
        return [_linked(job.storage, file, folder) for file in self.before.beside]


def _linked(storage: Storage, file: DataFile, folder: str) -> DataFile:
    path = f"{folder}/{file.path.rpartition('/')[2]}"
    storage.link(file.path, path)
    return replace(file, path=path)
