"""Tasks of `sbert search --queries`: texts -> vectors; vectors x one shard -> hits with columns."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbert_core.arrays import BoolArray, Float32Array
from sbert_core.choices import Precision
from sbert_core.data_file import ListedFile
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.result import require_vectors
from sbert_core.index.filter import row_mask
from sbert_core.index.hits import NO_ROW, empty_hits
from sbert_core.index.kinds import IndexKind
from sbert_core.index.shard import Shard
from sbert_core.storage import storage_at
from workers.index.shard import open_shard


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchJob:
    """Settings shared by all shards. columns: to return of each hit. where: --filter."""

    index: str
    kind: IndexKind
    dim: int
    effort: int
    k: int
    where: str | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShardHits:
    """The best rows of one shard.

    cos: (Q, k), -inf where there is no hit. columns: Q * k values each, None where there is no hit.
    """

    cos: Float32Array
    columns: dict[str, list[object]]


def encode_queries(model: str, dim: int, precision: Precision, texts: list[str]) -> Float32Array:
    """Unit vectors of queries, with the model's query prompt. dim: components to keep.

    ValueError for a query that has none.
    """
    encoder = Encoder.load(model, precision=precision, truncate_dim=dim, threads=1)
    encoded = encoder.encode_report(texts, prompt=encoder.query_prompt)
    return require_vectors(encoded, texts)


def search_shard(
    job: SearchJob, files: Sequence[ListedFile], blocks: Sequence[Float32Array]
) -> ShardHits:
    """Search one shard for all queries. files: of the shard. blocks: vectors of the queries."""
    with tempfile.TemporaryDirectory() as folder:
        shard = open_shard(storage_at(job.index), job.kind, job.dim, files, Path(folder))
        mask = shard_mask(shard, job.where)
        best = empty_hits(sum(len(block) for block in blocks), job.k)
        first = 0
        for block in blocks:
            hits = shard.search(block, job.k, job.effort, mask=mask)
            own = slice(first, first + len(block))
            best.cos[own, : hits.k], best.rows[own, : hits.k] = hits.cos, hits.rows
            first += len(block)
        rows = best.rows.reshape(-1)
        taken = shard.rows.select(list(job.columns)).take(np.maximum(rows, 0))
        columns: dict[str, list[object]] = {name: taken[name].to_pylist() for name in job.columns}
    for values in columns.values():
        for empty in np.flatnonzero(rows == NO_ROW).tolist():
            values[empty] = None
    return ShardHits(best.cos, columns)


def shard_mask(shard: Shard, where: str | None) -> BoolArray | None:
    """Rows of a shard that fulfil a condition; None for all of them.

    A shard of dead rows alone is not filtered: it may lack columns that were carried later.
    """
    if where is None or not shard.num_live:
        return None
    return row_mask(shard.rows, where)
