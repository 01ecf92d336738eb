"""A file of queries -> a Parquet file of their hits.

In:  queries of any format a corpus may have, and an index.
Out: one row for each query and hit, best first: `query`, `rank`, `id`, `cos`, and `rerank` if there
     is a cross-encoder. Queries are encoded, and shards searched, by Ray tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts.models import resolve_model
from pipelines.runtime.session import job_session
from pipelines.runtime.tasks import in_order
from pipelines.search.index import Index
from pipelines.search.rerank import score_pairs
from pipelines.search.spec import SearchSpec
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.formats import read_table
from sbert_core.corpus.text_lookup import LOCATION_COLUMNS, TextLookup
from workers.index.search import SearchJob, ShardHits, encode_queries, search_shard

ENCODED_QUERIES = 4096  # of one task


@dataclass(frozen=True, slots=True)
class Queries:
    """ids: of the file's own type; row numbers if it has no column of them."""

    ids: pa.Array
    texts: list[str]


@dataclass(frozen=True, slots=True)
class BatchHit:
    """A hit of one query. query: its number. values: id and location of the row, by column."""

    query: int
    cos: float
    values: dict[str, object]


def search_file(spec: SearchSpec, index: Index) -> int:
    """Search for every query of --queries and write --out; the number of queries."""
    assert spec.queries is not None and spec.out is not None
    queries = read_queries(spec.queries, spec.text_column, spec.id_column)
    index.load_encoder(spec.model, spec.precision)  # checks the space before anything starts
    model = resolve_model(spec.model or index.manifest.settings.model)
    out = Path(spec.out).absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    job = SearchJob(
        index=index.uri,
        kind=index.kind,
        dim=index.dim,
        effort=index.effort,
        k=spec.k + 1,  # one place more shows whether the last one is tied
        where=spec.filter,
        columns=location_columns(index),
    )
    texts = queries.texts
    chunks = [texts[i : i + ENCODED_QUERIES] for i in range(0, len(texts), ENCODED_QUERIES)]
    with job_session(str(out.parent), spec.address):
        blocks = in_order(
            encode_queries, [(model, index.dim, spec.precision, chunk) for chunk in chunks]
        )
        records = index.manifest.metrics.shard_records
        shards = in_order(search_shard, [(job, record.files, blocks) for record in records])
    hits = merge_shards(shards, len(texts), spec.k)
    scores = None if spec.rerank is None else _rerank(spec.rerank, index, texts, hits)
    part = out.with_name(f".{out.name}.part")
    id_type = pa.type_for_alias(index.manifest.schema["id"])
    pq.write_table(_to_table(queries.ids, hits, scores, id_type), part, compression="zstd")
    part.replace(out)
    return len(texts)


def location_columns(index: Index) -> tuple[str, ...]:
    """The id of a row and where its text is: file, row and, of windows, the characters."""
    return ("id", *(name for name in LOCATION_COLUMNS if name in index.manifest.schema))


def read_queries(place: str, text_column: str, id_column: str | None) -> Queries:
    """Ids and texts of a file of queries; ValueError if a column or a text is missing."""
    corpus = find_corpus(place)
    tables = [read_table(corpus.storage, file) for file in corpus.files]
    table = pa.concat_tables(tables, promote_options="default")
    name = id_column or ("id" if "id" in table.column_names else None)
    for wanted in (text_column, name):
        if wanted is not None and wanted not in table.column_names:
            raise ValueError(
                f"{place} has no column {wanted!r}; it has {', '.join(table.column_names)}"
            )
    texts = table[text_column].to_pylist()
    empty = [n for n, text in enumerate(texts) if not isinstance(text, str) or not text.strip()]
    if empty:
        raise ValueError(
            f"{place}: row {empty[0]} has no text ({len(empty)} such rows); remove them"
        )
    if not texts:
        raise ValueError(f"{place} holds no queries")
    ids = table[name].combine_chunks() if name else pa.array(range(len(texts)))
    return Queries(ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids, texts)


def merge_shards(shards: Sequence[ShardHits], num_queries: int, k: int) -> list[BatchHit]:
    """The k best hits of each query over all shards: by query, cosine, then id."""
    best: list[BatchHit] = []
    for query in range(num_queries):
        hits = []
        for shard in shards:
            width = shard.cos.shape[1]
            for place in np.flatnonzero(np.isfinite(shard.cos[query])).tolist():
                at = query * width + place
                values = {name: column[at] for name, column in shard.columns.items()}
                hits.append(BatchHit(query, float(shard.cos[query, place]), values))
        hits.sort(key=lambda hit: (-hit.cos, hit.values["id"]))
        best += hits[:k]
    return best


def _rerank(
    model: str, index: Index, texts: Sequence[str], hits: Sequence[BatchHit]
) -> list[float]:
    source = TextLookup(index.manifest.inputs.corpus)
    rows = pa.table({n: [hit.values[n] for hit in hits] for n in location_columns(index)})
    return score_pairs(model, [texts[hit.query] for hit in hits], source.for_rows(rows), source)


def _to_table(
    query_ids: pa.Array,
    hits: Sequence[BatchHit],
    rerank: Sequence[float] | None,
    id_type: pa.DataType,
) -> pa.Table:
    """One row for each hit, by query, then rerank score or cosine, then id."""
    scores = [hit.cos for hit in hits] if rerank is None else rerank
    order = sorted(
        range(len(hits)), key=lambda n: (hits[n].query, -scores[n], hits[n].values["id"])
    )
    ranks: list[int] = []
    for place, n in enumerate(order):
        is_next = place > 0 and hits[order[place - 1]].query == hits[n].query
        ranks.append(ranks[-1] + 1 if is_next else 1)
    names = query_ids.to_pylist()
    columns = {
        "query": pa.array([names[hits[n].query] for n in order], query_ids.type),
        "rank": pa.array(ranks, pa.int32()),
        "id": pa.array([hits[n].values["id"] for n in order], id_type),
        "cos": pa.array([hits[n].cos for n in order], pa.float32()),
    }
    if rerank is not None:
        columns["rerank"] = pa.array([rerank[n] for n in order], pa.float32())
    return pa.table(columns)
