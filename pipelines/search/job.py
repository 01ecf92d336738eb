"""Queries -> the closest rows of an index, reranked by a cross-encoder if there is one.

In:  an index, and one text or a file of queries.
Out: hits of the text with their texts, found in this process without Ray, in about the time of
     loading model and shards; or a Parquet file of the hits of all queries (`batch.py`).
"""

from dataclasses import dataclass

from pipelines.runtime.readable import ReadableReport
from pipelines.search.batch import location_columns, search_file
from pipelines.search.index import Index
from pipelines.search.rerank import score_pairs
from pipelines.search.spec import SearchSpec
from sbert_core.corpus.text_lookup import TextLookup
from sbert_core.encoder.result import require_vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One found row. id: a text or an integer. text: None where the corpus cannot be read."""

    rank: int
    cos: float
    id: object
    text: str | None
    rerank: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport(ReadableReport):
    """Hits of one query, or the file of many. notes: why texts are missing."""

    hits: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    out: str | None = None
    num_queries: int = 1


def run(spec: SearchSpec) -> SearchReport:
    """Search for the text or for the queries of a file."""
    index = Index.open(spec.index)
    if spec.text is None:
        return SearchReport(out=spec.out, num_queries=search_file(spec, index))
    return _search_text(spec, spec.text, index)


def _search_text(spec: SearchSpec, query: str, index: Index) -> SearchReport:
    encoder = index.load_encoder(spec.model, spec.precision)
    encoded = encoder.encode_report([query], prompt=encoder.query_prompt)
    found = index.search(require_vectors(encoded, [query]), spec.k, where=spec.filter)
    rows = index.columns(found.rows[0], location_columns(index))
    lookup = TextLookup(index.manifest.inputs.corpus)
    texts = lookup.for_rows(rows)
    scores: list[float] | None = None
    if spec.rerank is not None:
        scores = score_pairs(spec.rerank, [query] * len(texts), texts, lookup)
    cosines, ids = found.cos[0].tolist(), rows["id"].to_pylist()
    keys = cosines if scores is None else scores
    hits = [
        Hit(
            rank=rank,
            cos=cosines[n],
            id=ids[n],
            text=texts[n],
            rerank=None if scores is None else scores[n],
        )
        for rank, n in enumerate(sorted(range(len(ids)), key=lambda n: -keys[n]), start=1)
    ]
    return SearchReport(hits=tuple(hits), notes=tuple(lookup.notes))
