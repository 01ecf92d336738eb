"""Pairs of ids -> edges between numbered rows, and groups of equal ones."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.artifacts.ids import IdIndex, check_parts
from pipelines.artifacts.layout import GROUPS
from pipelines.artifacts.reader import PairsArtifact
from sbert_core.arrays import Int32Array
from sbert_core.join.bounded import Edges

# Pairs looked up at a time. Every look-up hashes all ids again, so there are few; 8M pairs of ids
# of 20 characters take 0.4 GB.
PAIRS_PER_LOOKUP = 8_000_000


def read_edges(pairs: PairsArtifact, rows: IdIndex, min_rerank: float | None) -> Edges:
    """All pairs as edges between rows of the index.

    min_rerank: pairs that a cross-encoder scored below it are left out. ValueError for pairs of
    ids that the index lacks.
    """
    check_parts(pairs, pairs.manifest.files)
    total = pairs.rows
    a, b, cos = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.float32)
    filled = 0
    rerank = [] if min_rerank is None else ["rerank"]
    for table in _tables(pairs, ["id_a", "id_b", "cos", *rerank]):
        if min_rerank is not None:
            is_good = pc.fill_null(pc.greater_equal(table["rerank"], min_rerank), True)
            table = table.filter(is_good)
        own = slice(filled, filled + table.num_rows)
        a[own], b[own] = rows.lookup(table["id_a"]), rows.lookup(table["id_b"])
        cos[own] = table["cos"].to_numpy()
        filled += table.num_rows
    if filled and min(a[:filled].min(), b[:filled].min()) < 0:
        raise ValueError(f"{pairs.uri} has pairs of rows that its vectors lack; find them again")
    return Edges(a[:filled], b[:filled], cos[:filled])


def read_groups(pairs: PairsArtifact, rows: IdIndex) -> list[Int32Array]:
    """Rows of each group of equal vectors that was too large to be expanded to pairs."""
    check_parts(pairs, pairs.manifest.sidecars)
    batches = list(pairs.sidecars(GROUPS))
    if not batches:
        return []
    table = pa.Table.from_batches(batches)
    number = rows.lookup(table["id"])
    representative = rows.lookup(table["representative"])
    return [np.sort(number[representative == own]) for own in np.unique(representative)]


def filter_by_cosine(edges: Edges, threshold: float) -> Edges:
    """Edges that reach a cosine."""
    reach = edges.cos >= np.float32(threshold)
    if reach.all():
        return edges
    return Edges(edges.a[reach], edges.b[reach], edges.cos[reach])


def _tables(pairs: PairsArtifact, columns: list[str]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    number = 0
    for batch in pairs.read(columns):
        waiting.append(batch)
        number += batch.num_rows
        if number >= PAIRS_PER_LOOKUP:
            yield pa.Table.from_batches(waiting)
            waiting, number = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
