"""Benchmark files -> data sets in memory.

In:  files under the column names that public data sets use; folders of several for transfer and
     retrieval.
Out: one Benchmark per data set, under a name short enough for a table.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.evaluate.spec import EvaluateSpec
from sbert_core.choices import Aggregate
from sbert_core.corpus.files import COMPRESSIONS, SUFFIXES, find_corpus
from sbert_core.corpus.labelled import (
    SCORES,
    drop_rows_without_text,
    find_column,
    find_text_columns,
    read_labelled,
    read_numbers,
    read_text_pairs,
    read_texts,
)
from sbert_core.evaluation.benchmarks import (
    Benchmark,
    ClusterBenchmark,
    FacetBenchmark,
    NliBenchmark,
    PairBenchmark,
    RetrievalBenchmark,
    StsBenchmark,
    TransferBenchmark,
    TripletBenchmark,
)

SPLIT_NAMES = ("train", "dev", "test")


def read_benchmarks(spec: EvaluateSpec) -> list[Benchmark]:
    """All data sets of a run, in the order of the tasks, under short names.

    Raises ValueError for files without the columns of their task.
    """
    found: list[Benchmark] = [_read_sts(place, spec.sts_aggregate) for place in spec.sts]
    found += [_read_nli(place) for place in spec.nli]
    found += [_read_triplets(place) for place in spec.triplets]
    found += [_read_pairs(place) for place in spec.pairs]
    found += read_transfer(spec.transfer) if spec.transfer else []
    found += _read_retrieval(spec.retrieval) if spec.retrieval else []
    found += [_read_clusters(place) for place in spec.clusters]
    found += [_read_facets(place) for place in spec.facets]
    places = [benchmark.data for benchmark in found]
    stems = [_stem(place) for place in places]
    names = shorten_names(stems if len(set(stems)) == len(set(places)) else places)
    return [replace(b, data=name) for b, name in zip(found, names, strict=True)]


def shorten_names(names: list[str]) -> list[str]:
    """As few last parts of the paths as still distinguish them."""
    parts = [Path(name).parts for name in names]
    for depth in range(1, max(map(len, parts), default=0)):
        short = ["/".join(own[-depth:]) for own in parts]
        if len(set(short)) == len(set(names)):
            return short
    return names


def _stem(place: str) -> str:
    """The path without the suffixes of its format; any other dot belongs to the name."""
    for known in (COMPRESSIONS, SUFFIXES):
        suffix = Path(place).suffix
        if suffix.lower() in known:
            place = place.removesuffix(suffix)
    return place


def _name(place: str) -> str:
    return place.rstrip("/")


def _read_sts(place: str, aggregate: Aggregate) -> StsBenchmark:
    table = read_labelled(place)
    a, b = read_text_pairs(table, place)
    return StsBenchmark(
        data=_name(place),
        a=a,
        b=b,
        subset=np.array(table["subset"].to_pylist()) if "subset" in table.column_names else None,
        similarity=read_numbers(table, find_column(table, SCORES, place), place),
        aggregate=Aggregate(aggregate),
    )


def _read_nli(place: str) -> NliBenchmark:
    table = read_labelled(place)
    a, b = read_text_pairs(table, place)
    label = table[find_column(table, ("label", "gold_label", "entailment"), place)].to_pylist()
    return NliBenchmark(data=_name(place), a=a, b=b, label=label)


def _read_triplets(place: str) -> TripletBenchmark:
    table = read_labelled(place)
    anchor, positive, negative = (
        read_texts(table, find_column(table, (role,), place), place)
        for role in ("anchor", "positive", "negative")
    )
    return TripletBenchmark(data=_name(place), anchor=anchor, positive=positive, negative=negative)


def _read_pairs(place: str) -> PairBenchmark:
    table = read_labelled(place)
    a, b = read_text_pairs(table, place)
    label = read_numbers(table, find_column(table, ("label", "is_duplicate"), place), place)
    if set(np.unique(label)) != {0.0, 1.0}:
        raise ValueError(f"labels of {place} are not 0 and 1; both must occur, and nothing else")
    return PairBenchmark(data=_name(place), a=a, b=b, is_match=label > 0)


def _read_clusters(place: str) -> ClusterBenchmark:
    table = read_labelled(place)
    text = read_texts(table, find_column(table, ("text",), place), place)
    cluster = np.array(table[find_column(table, ("cluster",), place)].to_pylist())
    return ClusterBenchmark(data=_name(place), text=text, cluster=cluster)


def _read_facets(place: str) -> FacetBenchmark:
    table = read_labelled(place)
    a, b = read_text_pairs(table, place)
    return FacetBenchmark(
        data=_name(place),
        a=a,
        b=b,
        similarity=read_numbers(table, find_column(table, SCORES, place), place),
        topic=np.array(table[find_column(table, ("topic",), place)].to_pylist()),
    )


def read_transfer(place: str) -> list[TransferBenchmark]:
    """One benchmark per task of a folder: NAME for ten folds, or NAME_train and NAME_test."""
    corpus = find_corpus(place)
    splits: dict[str, dict[str, str]] = {}
    for file in corpus.files:
        name, _, split = Path(file.path).stem.rpartition("_")
        if not name or split not in SPLIT_NAMES:
            name, split = Path(file.path).stem, ""
        splits.setdefault(name, {})[split] = f"{corpus.folder}/{file.path}"
    return [_read_transfer_task(name, files, place) for name, files in splits.items()]


def _read_transfer_task(name: str, files: dict[str, str], place: str) -> TransferBenchmark:
    """files: by split, "" for a task without splits."""
    if "" not in files and not {"train", "test"} <= set(files):
        raise ValueError(f"{place} has {name} without a train and a test file; add the other")
    # The dev split chooses settings elsewhere; here they are chosen inside the training rows.
    paths = [files[""]] if "" in files else [files["train"], files["test"]]
    tables = [_drop_textless(read_labelled(path), path) for path in paths]
    sizes = [table.num_rows for table in tables]
    table = pa.concat_tables(tables, promote_options="default")
    if "text" in table.column_names:
        a, b = read_texts(table, "text", place), None
    else:
        a, b = read_text_pairs(table, place)
    return TransferBenchmark(
        data=name,
        a=a,
        b=b,
        label=np.array(table[find_column(table, ("label",), place)].to_pylist()),
        is_test=np.repeat([False, True], sizes) if len(sizes) == 2 else None,
    )


def _drop_textless(table: pa.Table, path: str) -> pa.Table:
    names = ("text",) if "text" in table.column_names else find_text_columns(table, path)
    return drop_rows_without_text(table, names, path)


def _read_retrieval(place: str) -> list[RetrievalBenchmark]:
    """One benchmark per data set of a folder: NAME_docs, NAME_queries and NAME_qrels."""
    corpus = find_corpus(place)
    names = sorted({Path(f.path).stem.rpartition("_")[0] for f in corpus.files} - {""})
    found = []
    for name in names:
        parts = {}
        for part in ("docs", "queries", "qrels"):
            match = [f.path for f in corpus.files if Path(f.path).stem == f"{name}_{part}"]
            if not match:
                raise ValueError(f"{place} has no {name}_{part} file; retrieval needs all three")
            parts[part] = read_labelled(f"{corpus.folder}/{match[0]}")
        found.append(_make_retrieval(name, parts["docs"], parts["queries"], parts["qrels"], place))
    return found


def _make_retrieval(
    name: str, docs: pa.Table, queries: pa.Table, qrels: pa.Table, place: str
) -> RetrievalBenchmark:
    documents = read_texts(docs, find_column(docs, ("text",), place), place)
    if "title" in docs.column_names:
        titles = [title or "" for title in docs["title"].to_pylist()]
        documents = [f"{t} {text}".strip() for t, text in zip(titles, documents, strict=True)]
    row_of = {str(doc): row for row, doc in enumerate(docs["doc_id"].to_pylist())}
    gains = _read_gains(qrels, row_of)
    all_queries = zip(
        queries["query_id"].to_pylist(), read_texts(queries, "text", place), strict=True
    )
    kept = [(str(query), text) for query, text in all_queries if str(query) in gains]
    if not kept or all(row < 0 for query, _ in kept for row in gains[query]):
        raise ValueError(f"no query of {name} in {place} has a relevant document; check the ids")
    return RetrievalBenchmark(
        data=name,
        queries=[text for _, text in kept],
        documents=documents,
        relevant=[gains[query] for query, _ in kept],
    )


def _read_gains(qrels: pa.Table, row_of: dict[str, int]) -> dict[str, dict[int, float]]:
    """Gains by query and row of the document; a missing document gets a negative row."""
    gain_names = [n for n in ("score", "relevance") if n in qrels.column_names]
    values = qrels[gain_names[0]].to_pylist() if gain_names else [1.0] * qrels.num_rows
    judgements = zip(
        qrels["query_id"].to_pylist(), qrels["doc_id"].to_pylist(), values, strict=True
    )
    gains: dict[str, dict[int, float]] = {}
    for number, (query, doc, gain) in enumerate(judgements, start=1):
        if float(gain) > 0:  # a document that is not there counts as not found
            gains.setdefault(str(query), {})[row_of.get(str(doc), -number)] = float(gain)
    return gains
