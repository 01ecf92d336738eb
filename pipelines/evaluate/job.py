"""Models + benchmark files -> scores, side by side.

In:  encoders (and baselines of the paper), and files under the names public data sets use.
Out: a table on the terminal; every number in `scores.json` and `scores.md` if there is an --out.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.artifacts.models import local_model
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.runtime.session import job_session
from pipelines.runtime.tasks import in_order
from sbert_core.corpus.files import COMPRESSIONS, SUFFIXES, find_corpus
from sbert_core.corpus.labelled import (
    SCORES,
    column,
    numbers,
    table_of,
    text_names,
    text_pair,
    texts,
    with_texts,
)
from workers.evaluate import Benchmark, Score, judged

SPLIT_NAMES = ("train", "dev", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateReport:
    """The table as text, and all scores by model."""

    table: str
    scores: dict[str, list[Score]]
    out: Path | None
    is_new: bool = True


def run(spec: EvaluateSpec) -> EvaluateReport:
    """Read all files, then score one model after the other; on a cluster, side by side."""
    benchmarks = _benchmarks(spec)
    calls = [("model", local_model(model), benchmarks) for model in spec.models]
    for baseline in spec.baselines:
        kind, _, place = baseline.partition("=")
        folder = local_model(place) if kind in ("mean", "cls") else place
        calls.append((kind, folder, benchmarks))
    names = _makers(spec)
    if spec.address is None:
        found = [judged(*call) for call in calls]
    else:
        with job_session(str(spec.out or Path.cwd()), spec.address):
            found = in_order(judged, calls)
    scores = dict(zip(names, found, strict=True))
    report = EvaluateReport(table=score_table(scores), scores=scores, out=spec.out)
    if spec.out is not None:
        _write(spec.out, scores)
    return report


def reread(spec: EvaluateSpec) -> EvaluateReport:
    """What an earlier run of the same spec wrote."""
    assert spec.out is not None
    facts = json.loads((spec.out / "scores.json").read_text(encoding="utf-8"))
    scores = {model: [Score(**own) for own in found] for model, found in facts.items()}
    return EvaluateReport(table=score_table(scores), scores=scores, out=spec.out, is_new=False)


def _benchmarks(spec: EvaluateSpec) -> list[Benchmark]:
    found = [_sts(place, spec.sts_aggregate) for place in spec.sts]
    found += [_nli(place) for place in spec.nli]
    found += [_triplets(place) for place in spec.triplets]
    found += [_pairs(place) for place in spec.pairs]
    found += _transfer(spec.transfer) if spec.transfer else []
    found += _retrieval(spec.retrieval) if spec.retrieval else []
    found += [_clusters(place) for place in spec.clusters]
    found += [_facets(place) for place in spec.facets]
    places = [benchmark.data for benchmark in found]
    stems = [_stem(place) for place in places]
    names = _short(stems if len(set(stems)) == len(set(places)) else places)
    return [replace(b, data=name) for b, name in zip(found, names, strict=True)]


def _makers(spec: EvaluateSpec) -> list[str]:
    """A name for every model and baseline: as short as tells them apart, else as it was given."""
    words = [*spec.models, *spec.baselines]
    places = _short([baseline.partition("=")[2] for baseline in spec.baselines])
    kinds = [baseline.partition("=")[0] for baseline in spec.baselines]
    baselines = [f"{k}={place}" if place else k for k, place in zip(kinds, places, strict=True)]
    names = [*_short(list(spec.models)), *baselines]
    return names if len(set(names)) == len(set(words)) else words


def _sts(place: str, aggregate: str) -> Benchmark:
    table = table_of(place)
    a, b = text_pair(table, place)
    subset = np.array(table["subset"].to_pylist()) if "subset" in table.column_names else None
    score = numbers(table, column(table, SCORES, place), place)
    columns = {"a": a, "b": b, "score": score, "subset": subset}
    return _benchmark("sts", place, columns, aggregate=aggregate)


def _nli(place: str) -> Benchmark:
    table = table_of(place)
    a, b = text_pair(table, place)
    label = table[column(table, ("label", "gold_label", "entailment"), place)].to_pylist()
    return _benchmark("nli", place, {"a": a, "b": b, "label": label})


def _triplets(place: str) -> Benchmark:
    table = table_of(place)
    roles = ("anchor", "positive", "negative")
    return _benchmark(
        "triplets", place, {r: texts(table, column(table, (r,), place), place) for r in roles}
    )


def _pairs(place: str) -> Benchmark:
    table = table_of(place)
    a, b = text_pair(table, place)
    label = numbers(table, column(table, ("label", "is_duplicate"), place), place)
    if set(np.unique(label)) != {0.0, 1.0}:
        raise ValueError(f"labels of {place} are not 0 and 1; both must occur, and nothing else")
    return _benchmark("pairs", place, {"a": a, "b": b, "label": label > 0})


def _clusters(place: str) -> Benchmark:
    table = table_of(place)
    named = texts(table, column(table, ("text",), place), place)
    cluster = np.array(table[column(table, ("cluster",), place)].to_pylist())
    return _benchmark("clusters", place, {"text": named, "cluster": cluster})


def _facets(place: str) -> Benchmark:
    table = table_of(place)
    a, b = text_pair(table, place)
    columns = {
        "a": a,
        "b": b,
        "score": numbers(table, column(table, SCORES, place), place),
        "topic": np.array(table[column(table, ("topic",), place)].to_pylist()),
    }
    return _benchmark("facets", place, columns)


def _transfer(place: str) -> list[Benchmark]:
    """One benchmark per task: NAME for ten folds, or NAME_train and NAME_test."""
    corpus = find_corpus(place)
    splits: dict[str, dict[str | None, str]] = {}
    for file in corpus.files:
        name, _, split = Path(file.path).stem.rpartition("_")
        if not name or split not in SPLIT_NAMES:
            name, split = Path(file.path).stem, ""
        splits.setdefault(name, {})[split] = f"{corpus.folder}/{file.path}"
    found = []
    for name, files in splits.items():
        if "" not in files and not {"train", "test"} <= set(files):
            raise ValueError(f"{place} has {name} without a train and a test file; add the other")
        # The dev split chooses settings elsewhere; here they are chosen inside the training rows.
        chosen = [files[""]] if "" in files else [files["train"], files["test"]]
        tables = [_whole(table_of(path), path) for path in chosen]
        sizes = [table.num_rows for table in tables]
        table = pa.concat_tables(tables, promote_options="default")
        is_pair = "text" not in table.column_names
        a, b = text_pair(table, place) if is_pair else (texts(table, "text", place), None)
        columns = {
            "a": a,
            "b": b,
            "label": np.array(table[column(table, ("label",), place)].to_pylist()),
            "is_test": np.repeat([False, True], sizes) if len(sizes) == 2 else None,
        }
        found.append(Benchmark(task="transfer", data=name, columns=columns))
    return found


def _whole(table: pa.Table, path: str) -> pa.Table:
    names = ("text",) if "text" in table.column_names else text_names(table, path)
    return with_texts(table, names, path)


def _retrieval(place: str) -> list[Benchmark]:
    corpus = find_corpus(place)
    names = sorted({Path(f.path).stem.rpartition("_")[0] for f in corpus.files} - {""})
    found = []
    for name in names:
        parts = {}
        for part in ("docs", "queries", "qrels"):
            match = [f.path for f in corpus.files if Path(f.path).stem == f"{name}_{part}"]
            if not match:
                raise ValueError(f"{place} has no {name}_{part} file; retrieval needs all three")
            parts[part] = table_of(f"{corpus.folder}/{match[0]}")
        found.append(_retrieval_of(name, parts, place))
    return found


def _retrieval_of(name: str, parts: dict[str, pa.Table], place: str) -> Benchmark:
    docs, queries, qrels = parts["docs"], parts["queries"], parts["qrels"]
    bodies = texts(docs, column(docs, ("text",), place), place)
    if "title" in docs.column_names:
        titles = [title or "" for title in docs["title"].to_pylist()]
        bodies = [f"{t} {body}".strip() for t, body in zip(titles, bodies, strict=True)]
    row_of = {str(doc): row for row, doc in enumerate(docs["doc_id"].to_pylist())}
    gains: dict[str, dict[int, float]] = {}
    gain_names = [n for n in ("score", "relevance") if n in qrels.column_names]
    given = qrels[gain_names[0]].to_pylist() if gain_names else [1.0] * qrels.num_rows
    judged_pairs = zip(
        qrels["query_id"].to_pylist(), qrels["doc_id"].to_pylist(), given, strict=True
    )
    for number, (query, doc, gain) in enumerate(judged_pairs, start=1):
        if float(gain) > 0:  # an answer that is not among the documents counts as not found
            gains.setdefault(str(query), {})[row_of.get(str(doc), -number)] = float(gain)
    asked = zip(queries["query_id"].to_pylist(), texts(queries, "text", place), strict=True)
    kept = [(str(query), text) for query, text in asked if str(query) in gains]
    if not kept or all(row < 0 for query, _ in kept for row in gains[query]):
        raise ValueError(f"no query of {name} in {place} has a relevant document; check the ids")
    return Benchmark(
        task="retrieval",
        data=name,
        columns={
            "queries": [text for _, text in kept],
            "documents": bodies,
            "relevant": [gains[query] for query, _ in kept],
        },
    )


def _benchmark(task: str, place: str, columns: dict[str, Any], **options: object) -> Benchmark:
    return Benchmark(task=task, data=place.rstrip("/"), columns=columns, options=options)


def _short(names: list[str]) -> list[str]:
    """As many last parts of paths as it takes to tell them apart."""
    parts = [Path(name).parts for name in names]
    for depth in range(1, max(map(len, parts), default=0)):
        short = ["/".join(own[-depth:]) for own in parts]
        if len(set(short)) == len(set(names)):
            return short
    return names


def _stem(place: str) -> str:
    """Without the suffixes of its format; any other dot belongs to the name."""
    for known in (COMPRESSIONS, SUFFIXES):
        suffix = Path(place).suffix
        if suffix.lower() in known:
            place = place.removesuffix(suffix)
    return place


def score_table(scores: dict[str, list[Score]]) -> str:
    """Main scores in Markdown, which reads well as it is: data sets down, models across."""
    mains = [s for found in scores.values() for s in found if s.is_main]
    rows = list(dict.fromkeys((s.task, s.data, s.measure) for s in mains))
    lines = [
        f"| task | data | measure | {' | '.join(scores)} |",
        f"|---|---|---|{'---:|' * len(scores)}",
    ]
    values = {
        model: {(s.task, s.data, s.measure): s.value for s in found}
        for model, found in scores.items()
    }
    for row in rows:
        cells = [f"{v[row]:.2f}" if row in v else "-" for v in values.values()]
        lines.append(f"| {' | '.join(row)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _write(out: Path, scores: dict[str, list[Score]]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    facts = {model: [asdict(score) for score in found] for model, found in scores.items()}
    (out / "scores.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    every = {
        m: [Score(s.task, s.data, s.measure, s.value, True) for s in found]
        for m, found in scores.items()
    }
    text = f"{score_table(scores)}\n\n## All measures\n\n{score_table(every)}\n"
    (out / "scores.md").write_text(text, encoding="utf-8")
