"""One run of the index job on Ray: shards are kept, built, searched and measured.

Every finished step leaves a checkpoint from which a rerun continues.
"""

from dataclasses import dataclass, replace

from pipelines.artifacts.layout import WORK
from pipelines.artifacts.writer import Writer
from pipelines.index import plan
from pipelines.index.checkpoints import StepCheckpoints
from pipelines.index.identity import IndexIdentity
from pipelines.index.recall import EffortRecall, RecallTable
from pipelines.index.update import Update
from pipelines.runtime.progress import poll_progress, progress
from pipelines.runtime.tasks import as_they_come, in_order
from sbert_core.arrays import Float32Array
from sbert_core.data_file import ListedFile
from sbert_core.index.shard_record import ShardRecord
from sbert_core.vectors.reader import check_part
from sbert_core.vectors.row_ranges import RowRange, sample_rows, split_evenly
from workers.index.build import BuiltShard, TrainedIndex, build_shard, train_index
from workers.index.job import RecallQueries, read_vectors
from workers.index.measure import ExactCosines, ShardMeasure, exact_cosines, measure_shard
from workers.index.update import update_shard_rows

EXACT_ROWS = 500_000  # of one task of exact search
LATENCY_SECONDS = 5.0  # for single queries of one shard and effort


@dataclass(frozen=True, slots=True)
class BuiltIndex:
    """A whole index, not published yet.

    trained: the file all FAISS shards begin with. num_new: shards built by this run. seconds: of
    training and building, summed over tasks.
    """

    trained: ListedFile | None
    shards: list[ShardRecord]
    num_new: int
    recall: EffortRecall
    measures: list[ShardMeasure]
    seconds: float


class Build:
    """One run towards an index. pieces: all rows of the vectors. update: None to build anew."""

    def __init__(
        self, identity: IndexIdentity, out: Writer, pieces: list[RowRange], update: Update | None
    ) -> None:
        self.identity = identity
        self.spec = identity.spec
        self.out = out
        self.pieces = pieces
        self.update = update
        self.checkpoints = StepCheckpoints(out.storage, f"{WORK}/{identity.generation}")
        self.added = pieces if update is None else update.added
        self.efforts = identity.kind.efforts()[: None if self.spec.recall_target else 1]
        self.job = identity.job(out, None)

    def run(self) -> BuiltIndex:
        """Train, keep, build, measure; everything but publishing."""
        trained = self._find_or_train()
        self.job = replace(self.job, trained=trained.file if trained else None)
        queries = self._read_queries()
        kept = self._keep_shards()
        built = self._build_shards(queries, first=len(kept))
        exact = self._search_exactly(queries)
        shards = [*kept, *(own.record for own in built)]
        measures = self._measure(kept, built, queries)
        recall = RecallTable(exact, measures).choose_effort(self.efforts, self.spec.recall_target)
        seconds = (trained.seconds if trained else 0.0) + sum(own.seconds for own in built)
        return BuiltIndex(self.job.trained, shards, len(built), recall, measures, seconds)

    def _find_or_train(self) -> TrainedIndex | None:
        """The file FAISS shards begin with: of the index to update, of a checkpoint, or new."""
        if self.identity.kind.factory is None:
            return None
        if (current := self.identity.current) is not None:
            old = next(file for file in current.files if file.path == current.settings.trained)
            check_part(self.out.storage, old.path, old.sha256)
            file = ListedFile(path=old.path, sha256=old.sha256, bytes=old.bytes)
            return TrainedIndex(self._link(file), 0.0)
        trained = self.checkpoints.load_trained()
        if trained is None:
            number = plan.num_train_rows(self.identity.kind.num_cells, self.spec.train_sample)
            chosen = sample_rows(self.pieces, number, (self.spec.seed, 0))
            sample = in_order(read_vectors, [(self.job, piece) for piece in chosen])
            [trained] = in_order(train_index, [(self.job, sample)])
            self.checkpoints.save_trained(trained)
        return trained

    def _read_queries(self) -> RecallQueries:
        """Vectors of both samples that recall is measured with."""
        inside = sample_rows(self.pieces, self.spec.recall_sample, (self.spec.seed, 2))
        held = plan.sample_held_rows(self.added, self.spec.recall_sample, self.spec.seed)
        blocks = in_order(read_vectors, [(self.job, piece) for piece in [*inside, *held]])
        return plan.make_queries(blocks[: len(inside)], blocks[len(inside) :], held, self.job.dim)

    def _keep_shards(self) -> list[ShardRecord]:
        """Shards of the last index, linked; their rows rewritten where some of them changed."""
        if self.update is None or self.identity.current is None:
            return []
        return [
            self._keep_shard(number, record, self.update)
            for number, record in enumerate(self.identity.current.metrics.shard_records)
        ]

    def _keep_shard(self, number: int, record: ShardRecord, update: Update) -> ShardRecord:
        files = [self._link(file) for file in record.files]
        if number not in update.moved:
            return replace(record, files=tuple(files))
        moved = update.moved[number]
        call = (self.job, number, record.files, update.gone, moved)
        [rows] = in_order(update_shard_rows, [call])
        files[1] = rows.file
        staying = [sha for sha in record.parts if sha not in update.gone]
        parts = tuple(dict.fromkeys([*staying, *(own.piece.sha256 for own in moved)]))
        return replace(record, live=rows.live, parts=parts, files=tuple(files))

    def _link(self, file: ListedFile) -> ListedFile:
        """The same file as part of this generation, without a copy."""
        name = f"{self.job.folder}/{file.path.rpartition('/')[2]}"
        if name == file.path:
            return file
        return replace(file, path=self.out.storage.carry_over(file.path, name))

    def _build_shards(self, queries: RecallQueries, first: int) -> list[BuiltShard]:
        """Shards of the added rows, numbered from `first`; those with a checkpoint are taken."""
        rows = sum(piece.size for piece in self.added)
        if not rows:
            return []
        shards = split_evenly(self.added, plan.num_shards(rows, self.spec.shards))
        found = [self.checkpoints.load_shard(first + n) for n in range(len(shards))]
        todo = [n for n, built in enumerate(found) if built is None]
        calls = [(self.job, first + n, shards[n], queries, self.efforts) for n in todo]
        left = sum(piece.size for n in todo for piece in shards[n])
        by = f"{len(todo)} shards"
        with progress("index", left, by=by) as advance, poll_progress(self.job.run, advance):
            for place, built in as_they_come(build_shard, calls):
                self.checkpoints.save_shard(built)
                found[todo[place]] = built
        return [built for built in found if built is not None]

    def _search_exactly(self, queries: RecallQueries) -> list[ExactCosines]:
        """The true cosines, by tasks of half a million rows."""
        groups: list[list[RowRange]] = [[]]
        for piece in self.pieces:
            if sum(p.num_rows for p in groups[-1]) >= EXACT_ROWS:
                groups.append([])
            groups[-1].append(piece)
        return in_order(exact_cosines, [(self.job, group, queries) for group in groups])

    def _measure(
        self, kept: list[ShardRecord], built: list[BuiltShard], queries: RecallQueries
    ) -> list[ShardMeasure]:
        """Search every shard at every effort."""
        none: dict[int, Float32Array] = {}
        found = [(record.files, none) for record in kept]
        found += [(own.record.files, own.held) for own in built]
        calls = [
            (self.job, files, held, queries, self.efforts, LATENCY_SECONDS) for files, held in found
        ]
        return in_order(measure_shard, calls)
