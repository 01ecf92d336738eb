"""Queries -> the closest rows of an index, reranked by a cross-encoder if there is one.

One text is answered in this process, without Ray, in about the time of loading model and shards.
A file of queries runs as Ray tasks, one shard each, and becomes a Parquet file.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts.models import local_model
from pipelines.runtime.session import job_session
from pipelines.runtime.tasks import in_order
from pipelines.search.index import Index
from pipelines.search.spec import SearchSpec
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.formats import whole_table
from sbert_core.corpus.text_lookup import PLACE, CorpusTexts
from sbert_core.encoder.cross_encoder import CrossEncoder
from workers.index.search import SearchJob, encode_queries, search_shard

log = logging.getLogger(__name__)

ENCODED_QUERIES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One found row. text: None where the corpus cannot be read."""

    rank: int
    cos: float
    id: Any
    text: str | None
    rerank: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """Hits of one query, or the file of many."""

    hits: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    out: str | None = None
    num_queries: int = 1


def run(spec: SearchSpec) -> SearchReport:
    index = Index.open(spec.index)
    return _one(spec, index) if spec.text is not None else _many(spec, index)


def _one(spec: SearchSpec, index: Index) -> SearchReport:
    assert spec.text is not None
    encoder = index.encoder_of(spec.model)
    vector = encoder.encode([spec.text], prompt=encoder.query_prompt)
    found = index.search(vector, spec.k, where=spec.filter)
    places = index.columns(found.rows[0], _columns(index))
    texts = _texts(index)
    shown = texts.of(places)
    scores: list[float | None] = [None] * len(shown)
    if spec.rerank is not None:
        scores = _reranked(spec.rerank, [spec.text] * len(shown), shown, texts)
    rows = zip(places["id"].to_pylist(), found.cos[0].tolist(), shown, scores, strict=True)
    ordered = sorted(rows, key=lambda row: -(row[3] if row[3] is not None else row[1]))
    hits = [
        Hit(rank=rank, cos=cos, id=name, text=text, rerank=score)
        for rank, (name, cos, text, score) in enumerate(ordered, start=1)
    ]
    return SearchReport(hits=tuple(hits), notes=tuple(texts.notes))


def _texts(index: Index) -> CorpusTexts:
    return CorpusTexts(index.manifest.made_from["corpus"])


def _columns(index: Index) -> tuple[str, ...]:
    """The id of a row and where its text is; windows of documents have bounds in it."""
    return ("id", *(name for name in PLACE if name in index.manifest.schema))


def _reranked(
    model: str, queries: Sequence[str], texts: Sequence[str | None], source: CorpusTexts
) -> list[float | None]:
    """A cross-encoder's score for each pair; all texts must be there."""
    if any(text is None for text in texts):
        why = "; ".join(source.notes) or f"{source.root} holds no such text"
        raise ValueError(f"rerank needs the texts of all hits; {why}: embed the corpus again")
    encoder = CrossEncoder.load(local_model(model))
    pairs = [(query, str(text)) for query, text in zip(queries, texts, strict=True)]
    scores = encoder.predict(pairs) if pairs else np.empty(0)
    if scores.ndim > 1:
        raise ValueError(
            f"{model} gives {scores.shape[1]} classes, not a score; rerank with a cross-encoder "
            "that has one output"
        )
    return [float(score) for score in scores]


def _many(spec: SearchSpec, index: Index) -> SearchReport:
    assert spec.queries is not None and spec.out is not None
    ids, texts = _read_queries(spec)
    encoder = index.encoder_of(spec.model)  # checks the space before anything starts
    model = str(Path(local_model(spec.model or index.manifest.spec["model"])).absolute())
    del encoder
    out = Path(spec.out).absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    job = SearchJob(
        index=index.uri,
        kind=index.kind,
        dim=index.dim,
        effort=index.effort,
        k=spec.k + 1,
        where=spec.filter,
        columns=_columns(index),
    )
    chunks = [texts[i : i + ENCODED_QUERIES] for i in range(0, len(texts), ENCODED_QUERIES)]
    with job_session(str(out.parent), spec.address):
        blocks = in_order(encode_queries, [(model, index.dim, chunk) for chunk in chunks])
        records = index.manifest.facts["shard_records"]
        found = in_order(search_shard, [(job, record["files"], blocks) for record in records])
    table = _table(spec, index, ids, texts, found)
    part = out.with_name(f".{out.name}.part")
    pq.write_table(table, part, compression="zstd")
    part.replace(out)
    return SearchReport(out=spec.out, num_queries=len(texts))


def _read_queries(spec: SearchSpec) -> tuple[pa.Array, list[str]]:
    """Ids and texts of a file of queries; ids are row numbers if there is no column of them."""
    assert spec.queries is not None
    corpus = find_corpus(spec.queries)
    tables = [whole_table(corpus.storage, file) for file in corpus.files]
    table = pa.concat_tables(tables, promote_options="default")
    name = spec.id_column or ("id" if "id" in table.column_names else None)
    for wanted in (spec.text_column, name):
        if wanted is not None and wanted not in table.column_names:
            raise ValueError(
                f"{spec.queries} has no column {wanted!r}; it has {', '.join(table.column_names)}"
            )
    texts = table[spec.text_column].to_pylist()
    empty = [n for n, text in enumerate(texts) if not isinstance(text, str) or not text.strip()]
    if empty:
        raise ValueError(
            f"{spec.queries}: row {empty[0]} has no text ({len(empty)} such rows); remove them"
        )
    if not texts:
        raise ValueError(f"{spec.queries} holds no queries")
    ids = table[name].combine_chunks() if name else pa.array(range(len(texts)))
    return (ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids), texts


def _table(
    spec: SearchSpec,
    index: Index,
    ids: pa.Array,
    texts: list[str],
    found: list[tuple[np.ndarray, dict[str, list[Any]]]],
) -> pa.Table:
    """One row for each query and hit, best first."""
    k = spec.k + 1
    rows: list[dict[str, Any]] = []
    for number, query in enumerate(ids.to_pylist()):
        hits = [
            {"cos": float(cos[number, place]), **{n: v[number * k + place] for n, v in own.items()}}
            for cos, own in found
            for place in range(k)
            if np.isfinite(cos[number, place])
        ]
        hits.sort(key=lambda hit: (-hit["cos"], hit["id"]))
        rows += [{"query": query, "number": number, **hit} for hit in hits[: spec.k]]
    columns: dict[str, list[Any]] = {
        "query": [row["query"] for row in rows],
        "rank": [],
        "id": [row["id"] for row in rows],
        "cos": [row["cos"] for row in rows],
    }
    if spec.rerank is not None:
        source = _texts(index)
        pairs = [texts[row["number"]] for row in rows]
        places = pa.table({n: [row[n] for row in rows] for n in _columns(index)})
        columns["rerank"] = _reranked(spec.rerank, pairs, source.of(places), source)
    order = sorted(
        range(len(rows)),
        key=lambda n: (rows[n]["number"], -columns.get("rerank", columns["cos"])[n], rows[n]["id"]),
    )
    columns["rank"] = [0] * len(rows)
    table = {name: [values[n] for n in order] for name, values in columns.items()}
    last, rank = None, 0
    for place, n in enumerate(order):
        rank = rank + 1 if rows[n]["number"] == last else 1
        last = rows[n]["number"]
        table["rank"][place] = rank
    types = {"rank": pa.int32(), "cos": pa.float32(), "rerank": pa.float32(), "query": ids.type}
    types["id"] = pa.type_for_alias(index.manifest.schema["id"])
    return pa.table({name: pa.array(v, types.get(name)) for name, v in table.items()})
