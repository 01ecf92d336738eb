"""One run of the index job on Ray: shards kept, built, searched and measured.

Every finished step leaves a note that a rerun takes up.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipelines.artifacts.layout import WORK
from pipelines.artifacts.writer import Writer
from pipelines.index import plan
from pipelines.index.checkpoints import Notes
from pipelines.index.identity import Goal
from pipelines.index.recall import Findings, Measured
from pipelines.index.update import Update
from pipelines.runtime.progress import polled, progress
from pipelines.runtime.tasks import as_they_come, in_order
from sbert_core.vectors.reader import check_part
from sbert_core.vectors.row_ranges import Piece, cut, sampled
from workers.index.shard import (
    Queries,
    build_shard,
    exact_cosines,
    measure_shard,
    retouch_shard,
    sampled_vectors,
    train_index,
)

EXACT_ROWS = 500_000  # of one task of exact search
LATENCY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Built:
    """What is there at the end. trained: the file all FAISS shards begin with."""

    trained: dict[str, Any] | None
    shards: list[dict[str, Any]]
    num_new: int
    measured: Measured
    measures: list[dict[str, Any]]
    seconds: float


class Build:
    """One run towards a goal."""

    def __init__(self, goal: Goal, out: Writer, pieces: list[Piece], change: Update | None) -> None:
        self.goal = goal
        self.spec = goal.spec
        self.out = out
        self.pieces = pieces
        self.change = change
        self.notes = Notes(out.storage, f"{WORK}/{goal.generation}")
        self.added = pieces if change is None else change.added
        self.efforts = goal.kind.efforts()[: None if self.spec.recall_target else 1]
        self.job = goal.job(out, None)

    def run(self) -> "Built":
        """Train, keep, build, measure; everything but publishing."""
        trained, seconds = self._trained()
        self.job = replace(self.job, trained=trained)
        queries = self._queries()
        kept = self._kept()
        built = self._built(queries, first=len(kept))
        exact = self._exact(queries)
        shards = [*kept, *built]
        measures = self._measured(shards, queries)
        measured = Findings(exact, measures).measured(self.efforts, self.spec.recall_target)
        seconds += sum(record["seconds"] for record in built)
        return Built(trained, shards, len(built), measured, measures, seconds)

    def _trained(self) -> tuple[dict[str, Any] | None, float]:
        """The file FAISS shards begin with, and the seconds it took."""
        if self.goal.kind.factory is None:
            return None, 0.0
        if self.goal.current is not None:
            path = self.goal.current.spec["trained"]
            old = next(file for file in self.goal.current.files if file.path == path)
            check_part(self.out.storage, old.path, old.sha256)
            return self._linked({"path": old.path, "sha256": old.sha256, "bytes": old.bytes}), 0.0
        made = self.notes.find("trained")
        if made is None:
            made = self._train()
            self.notes.keep("trained", made)
        return made["file"], made["seconds"]

    def _train(self) -> dict[str, Any]:
        number = plan.train_rows(self.goal.kind.num_cells, self.spec.train_sample)
        chosen = sampled(self.pieces, number, (self.spec.seed, 0))
        sample = in_order(sampled_vectors, [(self.job, piece) for piece in chosen])
        [made] = in_order(train_index, [(self.job, sample)])
        return made

    def _queries(self) -> Queries:
        inside = sampled(self.pieces, self.spec.recall_sample, (self.spec.seed, 2))
        held = plan.held_sample(self.added, self.spec.recall_sample, self.spec.seed)
        found = in_order(sampled_vectors, [(self.job, piece) for piece in [*inside, *held]])
        return plan.queries_of(found[: len(inside)], found[len(inside) :], held, self.job.dim)

    def _kept(self) -> list[dict[str, Any]]:
        """Shards of the last index, linked; their rows rewritten where some of them changed."""
        if self.change is None or self.goal.current is None:
            return []
        records = [dict(record) for record in self.goal.current.facts["shard_records"]]
        for number, record in enumerate(records):
            record["held"] = {}
            files = [self._linked(file) for file in record["files"]]
            if number in self.change.moved:
                call = (self.job, number, record["files"], self.change.gone,
                        self.change.moved[number])  # fmt: skip
                [(files[1], record["live"])] = in_order(retouch_shard, [call])
                moved = [piece.sha256 for _, piece, _ in self.change.moved[number]]
                staying = [sha for sha in record["parts"] if sha not in self.change.gone]
                record["parts"] = list(dict.fromkeys([*staying, *moved]))
            record["files"] = files
        return records

    def _linked(self, file: dict[str, Any]) -> dict[str, Any]:
        name = f"{self.job.folder}/{file['path'].rpartition('/')[2]}"
        if name != file["path"]:
            self.out.storage.link(file["path"], name)
        return {**file, "path": name}

    def _built(self, queries: Queries, first: int) -> list[dict[str, Any]]:
        rows = sum(piece.size for piece in self.added)
        if not rows:
            return []
        shards = cut(self.added, plan.num_shards(rows, self.spec.shards))
        found = [self.notes.find(f"shard-{first + n:05d}") for n in range(len(shards))]
        todo = [n for n, record in enumerate(found) if record is None]
        calls = [(self.job, first + n, shards[n], queries, self.efforts) for n in todo]
        left = sum(piece.size for n in todo for piece in shards[n])
        by = f"{len(todo)} shards"
        with progress("index", left, by=by) as advance, polled(self.job.run, advance):
            for place, record in as_they_come(build_shard, calls):
                held = record.pop("held")
                self.notes.keep(f"shard-{record['number']:05d}", record, held=held)
                found[todo[place]] = {**record, "held": held}
        return [record for record in found if record is not None]

    def _exact(self, queries: Queries) -> list[tuple[np.ndarray, np.ndarray]]:
        groups: list[list[Piece]] = [[]]
        for piece in self.pieces:
            if sum(p.num_rows for p in groups[-1]) >= EXACT_ROWS:
                groups.append([])
            groups[-1].append(piece)
        return in_order(exact_cosines, [(self.job, group, queries) for group in groups])

    def _measured(self, shards: list[dict[str, Any]], queries: Queries) -> list[dict[str, Any]]:
        calls = [(self.job, s, queries, self.efforts, LATENCY_SECONDS) for s in shards]
        found = in_order(measure_shard, calls)
        for measure in found:
            measure["speed"] = {str(effort): own for effort, own in measure["speed"].items()}
        return found
