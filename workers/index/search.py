"""Tasks of a batch search: texts -> vectors; vectors x one shard -> hits with ids."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sbert_core.encoder import Encoder
from sbert_core.index.filter import rows_where
from sbert_core.index.hits import NOTHING
from sbert_core.index.kinds import IndexKind
from sbert_core.storage import storage_at
from workers.index.shard import open_shard


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchJob:
    """What is the same for all shards."""

    index: str
    kind: IndexKind
    dim: int
    effort: int
    k: int
    where: str | None
    columns: tuple[str, ...]


def encode_queries(model: str, dim: int, texts: list[str]) -> np.ndarray:
    """Unit vectors of queries, with the model's query prompt."""
    encoder = Encoder.load(model, truncate_dim=dim, threads=1)
    return encoder.encode(texts, prompt=encoder.query_prompt)


def search_shard(
    job: SearchJob, files: Sequence[dict[str, Any]], blocks: Sequence[np.ndarray]
) -> tuple[np.ndarray, dict[str, list[Any]]]:
    """Cosines of the best rows of one shard for all queries, and their columns, flat.

    A place without a hit has the cosine -inf and None in every column.
    """
    with tempfile.TemporaryDirectory() as folder:
        shard = open_shard(storage_at(job.index), job.kind, job.dim, files, Path(folder))
        # A shard of dead rows may lack columns that were carried later.
        wanted = (
            rows_where(shard.rows, job.where) if job.where is not None and shard.num_live else None
        )
        found = [shard.search(block, job.k, job.effort, wanted=wanted) for block in blocks]
        cos = np.full((sum(len(hits.cos) for hits in found), job.k), -np.inf, np.float32)
        rows = np.full(cos.shape, NOTHING)
        first = 0
        for hits in found:
            place = slice(first, first + len(hits.cos))
            cos[place, : hits.k], rows[place, : hits.k] = (
                hits.cos[:, : job.k],
                hits.rows[:, : job.k],
            )
            first += len(hits.cos)
        flat = rows.reshape(-1)
        taken = shard.rows.select(list(job.columns)).take(np.maximum(flat, 0))
        columns = {name: taken[name].to_pylist() for name in job.columns}
    for values in columns.values():
        for empty in np.flatnonzero(flat == NOTHING).tolist():
            values[empty] = None
    return cos, columns
