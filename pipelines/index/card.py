"""The index card: what the index holds, what it misses, how fast it is.

In:  the manifest, and the times that were measured shard by shard.
Out: IndexCard, the content of card.json.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipelines.artifacts.manifest import IndexManifest
from pipelines.artifacts.sidecars import (
    CARD,
    IndexCard,
    IndexParameters,
    QueryTimes,
    read_sidecar,
)
from sbert_core.storage import storage_at
from workers.index.measure import ShardMeasure

# Times are also stated for an index of this size, in shards of this size.
FAR_ROWS = 40_000_000
FAR_SHARD_ROWS = 1_000_000


def read_card(place: str) -> IndexCard:
    """The card of a published index; ValueError if the file is broken."""
    return read_sidecar(storage_at(place), CARD, IndexCard)


def make_card(
    manifest: IndexManifest, measures: Sequence[ShardMeasure], seconds: float
) -> IndexCard:
    """The card of an index. seconds: of building. Query times are of this machine, one thread."""
    settings, metrics = manifest.settings, manifest.metrics
    times = [measure.times[metrics.search.effort] for measure in measures]
    batch = sum(own.batch for own in times)
    # Shards are searched one after another, so a query takes the sum over all of them.
    length = min(len(own.single) for own in times)
    single_ms = np.sum([own.single[:length] for own in times], axis=0) * 1000
    p50, p99 = (float(np.percentile(single_ms, p)) for p in (50, 99))
    measured = QueryTimes(p50=p50, p99=p99, rows=manifest.rows)
    return IndexCard(
        generation=manifest.generation,
        rows=manifest.rows,
        distinct=metrics.distinct,
        dim=settings.dim,
        space=settings.space,
        kind=settings.kind,
        parameters=IndexParameters(
            m=settings.m,
            ef_construction=settings.ef_construction,
            factory=settings.factory,
            seed=settings.seed,
        ),
        shards=len(metrics.shard_records),
        bytes=sum(file.bytes for file in manifest.files),
        stale=metrics.stale,
        search=metrics.search,
        recall=metrics.recall,
        build_seconds=round(seconds, 2),
        queries_per_second=round(1 / batch, 1) if batch else None,
        single_query_ms=measured,
        extrapolated_query_ms=_extrapolate(measured, settings.kind, len(metrics.shard_records)),
    )


def _extrapolate(measured: QueryTimes, kind: str, num_shards: int) -> QueryTimes:
    """Times of a query among 40M rows."""
    rows, shards = max(2, measured.rows), max(1, num_shards)
    if kind == "hnsw":
        far_shards = FAR_ROWS // FAR_SHARD_ROWS
        depth = math.log(FAR_SHARD_ROWS) / math.log(max(2, rows / shards))
        factor = far_shards / shards * max(1.0, depth)
        how = (
            f"not measured: {far_shards} shards of 1M rows one after another on one thread, each "
            "slower than here by the logarithm of its rows"
        )
    else:
        factor, how = FAR_ROWS / rows, "not measured: time grows with the rows"
    return replace(
        measured, p50=measured.p50 * factor, p99=measured.p99 * factor, rows=FAR_ROWS, how=how
    )
