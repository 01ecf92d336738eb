"""Tasks of `sbert index` that measure: exact search over parts, recall and speed of a shard."""

import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_core.arrays import Float32Array
from sbert_core.data_file import ListedFile
from sbert_core.index.hits import NO_ROW, Hits, empty_hits, exact_search, merge_hits
from sbert_core.index.shard import Shard
from sbert_core.vectors.row_ranges import RowRange
from workers.index.build import DEPTH
from workers.index.job import IndexJob, RecallQueries, read_vectors
from workers.index.shard import open_shard

SINGLE_QUERIES = 200
TIMED_HITS = 10


@dataclass(frozen=True, slots=True)
class SearchTimes:
    """Seconds of searches for ten hits on one thread.

    batch: per query, all queries in one call. single: of each query alone.
    """

    batch: float
    single: list[float]


@dataclass(frozen=True, slots=True)
class ShardMeasure:
    """By effort: the best cosines for both samples of queries, and the time it took."""

    inside: dict[int, Float32Array]
    held: dict[int, Float32Array]
    times: dict[int, SearchTimes]


@dataclass(frozen=True, slots=True)
class ExactCosines:
    """The true best cosines of some parts. held: without the held-out rows themselves."""

    inside: Float32Array
    held: Float32Array


def exact_cosines(
    job: IndexJob, pieces: Sequence[RowRange], queries: RecallQueries
) -> ExactCosines:
    """Compare the queries with every row of these pieces."""
    inside, held = empty_hits(len(queries.inside), DEPTH), empty_hits(len(queries.held), DEPTH)
    for piece in pieces:
        vectors = read_vectors(job, piece)
        inside = merge_hits([inside, exact_search(queries.inside, vectors, DEPTH)], DEPTH)
        early = vectors[piece.mask_without(queries.held_rows_in(piece))]
        held = merge_hits([held, exact_search(queries.held, early, DEPTH)], DEPTH)
    return ExactCosines(inside.cos, held.cos)


def measure_shard(
    job: IndexJob,
    files: Sequence[ListedFile],
    held: dict[int, Float32Array],
    queries: RecallQueries,
    efforts: list[int],
    seconds: float,
) -> ShardMeasure:
    """Search a shard at each effort.

    held: what the build found for held-out queries; searched for here if it is empty. seconds: at
    most for single queries of each effort.
    """
    with tempfile.TemporaryDirectory() as folder:
        shard = open_shard(job.storage, job.kind, job.dim, files, Path(folder))
        inside = {e: shard.search(queries.inside, DEPTH, e).cos for e in efforts}
        held = held or {e: shard.search(queries.held, DEPTH, e).cos for e in efforts}
        times = {e: _time_searches(shard, queries.inside, e, seconds) for e in efforts}
    return ShardMeasure(inside, held, times)


def _time_searches(shard: Shard, queries: Float32Array, effort: int, seconds: float) -> SearchTimes:
    start = time.perf_counter()
    shard.search(queries, TIMED_HITS, effort)
    batch = (time.perf_counter() - start) / max(1, len(queries))
    single = []
    deadline = time.perf_counter() + seconds
    for query in queries[:SINGLE_QUERIES]:
        start = time.perf_counter()
        shard.search(query[None], TIMED_HITS, effort)
        single.append(time.perf_counter() - start)
        if start > deadline:
            break
    return SearchTimes(batch, single)


def merge_cosines(parts: Iterable[Float32Array]) -> Hits:
    """The best cosines of several parts; rows are 0 where there is a hit: recall ignores them."""
    cos = np.hstack(list(parts))
    best = -np.sort(-cos, axis=1)[:, :DEPTH]
    return Hits(best, np.where(np.isfinite(best), 0, NO_ROW))
