"""The index job against its libraries called directly; memory of a shard's task; latency.

Run by `make bench-index`.

    python tests/bench/index.py build [--vectors FOLDER]   build and batch search, in turns
    python tests/bench/index.py memory                     a shard's task at 50k and 500k rows
    python tests/bench/index.py latency [--rows 1000000]   one query at a time among many rows
    python tests/bench/index.py retrieval --data FOLDER [--cross MODEL]
                                                           nDCG@10 by embed, index and search;
                                                           `titles` trains a cross-encoder first

Build times are those of the tasks, from reading the first part to the last file written: Ray's
start is not among them. Direct calls read the same files and write the same kind of file with the
same parameters and one thread. Kinds that lose precision are searched with FAISS's
own refinement, as Index.search looks at the vectors again. Without --vectors they are synthetic.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import hnswlib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent))

from paper_cells import sbert
from scale import watched
from support.synthetic import random_vectors, topical_vectors, write_vectors

from pipelines.artifacts.models import resolve_model
from pipelines.artifacts.reader import Artifact
from pipelines.index import job as index_job
from pipelines.index import plan
from pipelines.index.spec import IndexSpec
from pipelines.runtime.session import num_cores
from pipelines.search.index import Index
from sbert_core.encoder.encoder import Encoder
from sbert_core.evaluation.retrieval import retrieval_scores
from sbert_core.index.faiss_index import skip_polysemous
from sbert_core.index.hits import exact_search
from sbert_core.index.kinds import IndexKind
from sbert_core.index.shard import LOSSY_FACTOR
from sbert_core.storage import storage_at
from sbert_core.vectors.reader import decode_unit_vectors, read_part

KINDS = ("hnsw", "faiss:IVF4096,PQ48", "faiss:IVF1024,Flat")
K = 10
NUM_QUERIES = 2000
NUM_TITLES = 1000
SEARCH_ROUNDS = 7
MEMORY = {"driver": (b"driver",), "shard": (b"build_shard",), "other": (b"ray::",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=PARTS)
    parser.add_argument("--vectors", type=Path, help="a vectors artifact")
    parser.add_argument("--rows", type=int, nargs="+", help="of synthetic vectors")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="NAME_docs, NAME_queries, NAME_qrels.parquet")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--cross", help="for a second look at the hits: a model, or `titles`")
    parser.add_argument("--folder", type=Path, help="for temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        PARTS[options.what](options, Path(folder))


# -- the libraries alone ---------------------------------------------------------------------------


def build(options: argparse.Namespace, work: Path) -> None:
    place = options.vectors
    if place is None:
        [rows] = options.rows or [60_000]
        place = write_vectors(work / "vectors", topical_vectors(rows, options.dim))
    vectors = all_vectors(place)
    print(f"{len(vectors):,} vectors of {vectors.shape[1]} dimensions, one shard\n")
    heads = ("kind", "direct build s", "index tasks s", "ratio", "direct queries/s")
    print(f"| {' | '.join(heads)} | Index.search | ratio | recall@10 held out |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kind in options.kinds:
        print(
            f"| {kind} | {' | '.join(compared(kind, place, vectors, options, work))} |", flush=True
        )


def compared(
    kind: str, place: Path, vectors: np.ndarray, options: argparse.Namespace, work: Path
) -> list[str]:
    """Cells of one kind; both sides take turns, ratios are medians over the rounds."""
    built = IndexKind.parse(kind, m=16, ef_construction=200)
    name = kind.replace(":", "-").replace(",", "-")
    theirs, ours = [], []
    for number in range(options.rounds):
        path = work / f"{name}-direct"
        theirs.append(seconds(lambda p=path: direct(built, read_plainly(place), p)))
        out = work / f"{name}-{number}"
        spec = IndexSpec(vectors=str(place), out=str(out), kind=kind, shards=1)
        card = index_job.run(spec).card
        ours.append(card.build_seconds)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    queries = vectors[np.random.default_rng(0).choice(len(vectors), NUM_QUERIES)]
    search, expected, got = searched(Index.open(out), built, path, vectors, queries)
    recall = card.recall["held"]["10"]
    return [
        f"{min(theirs):.2f}",
        f"{min(ours):.2f}",
        f"{ratio:.3f}",
        f"{expected:,.0f}",
        f"{got:,.0f}",
        f"{search:.3f}",
        f"{recall.value:.4f} ({recall.low:.4f} to {recall.high:.4f})",
    ]


def direct(kind: IndexKind, vectors: np.ndarray, path: Path) -> None:
    """What one would write by hand."""
    num_rows, dim = vectors.shape
    if kind.factory is None:
        graph = hnswlib.Index("ip", dim)
        graph.init_index(num_rows, M=kind.m, ef_construction=kind.ef_construction, random_seed=0)
        graph.add_items(vectors, num_threads=1)
        graph.save_index(str(path))
        return
    faiss.omp_set_num_threads(1)
    index = faiss.index_factory(dim, kind.factory, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        skip_polysemous(index)  # as the job does: codes for a search nobody asks for
        size = min(num_rows, plan.num_train_rows(kind.num_cells, None))
        index.train(vectors[np.random.default_rng(0).choice(num_rows, size, replace=False)])
    index.add(vectors)
    faiss.write_index(index, str(path))


def searched(
    index: Index, kind: IndexKind, path: Path, vectors: np.ndarray, queries: np.ndarray
) -> tuple[float, float, float]:
    """Ratio of throughputs, and both; equal effort and threads."""
    threads = num_cores()
    search: Callable[[], object]
    if kind.factory is None:
        graph = hnswlib.Index("ip", queries.shape[1])
        graph.load_index(str(path))
        graph.set_ef(index.effort)
        search = lambda: graph.knn_query(queries, K, num_threads=threads)  # noqa: E731
    else:
        faiss.omp_set_num_threads(threads)
        plain = faiss.read_index(str(path))
        if kind.effort_name is not None:
            faiss.ParameterSpace().set_index_parameter(plain, kind.effort_name, index.effort)
        if index.shard(0).index.is_lossy:
            plain = refined(plain, vectors)
        search = lambda: plain.search(queries, K)  # noqa: E731
    search(), index.search(queries, K)
    rounds = [
        (seconds(search), seconds(lambda: index.search(queries, K))) for _ in range(SEARCH_ROUNDS)
    ]
    theirs, ours = (len(queries) / min(times) for times in zip(*rounds, strict=True))
    return statistics.median(a / b for a, b in rounds), theirs, ours


def refined(index: faiss.Index, vectors: np.ndarray) -> faiss.Index:
    """FAISS's own second look at the best of a lossy search."""
    exact = faiss.IndexFlatIP(vectors.shape[1])
    exact.add(vectors)
    both = faiss.IndexRefine(index, exact)
    both.k_factor = LOSSY_FACTOR
    return both


def read_plainly(place: Path) -> np.ndarray:
    table = pq.read_table(Artifact.open(place).folder, columns=["vector"])
    column = table["vector"].combine_chunks()
    vectors = column.flatten().to_numpy().reshape(len(column), -1).astype(np.float32)
    faiss.normalize_L2(vectors)
    return vectors


def all_vectors(place: Path) -> np.ndarray:
    artifact = Artifact.open(place)
    storage, scale = storage_at(artifact.uri), artifact.manifest.settings.scale
    files = artifact.manifest.files
    tables = [read_part(storage, file.path, ["id", "vector"]) for file in files]
    return np.concatenate([decode_unit_vectors(table, scale, "-") for table in tables])


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# -- memory and latency ----------------------------------------------------------------------------


def memory(options: argparse.Namespace, work: Path) -> None:
    print("| rows | shards | seconds | peak private MB: driver | build_shard | other tasks |")
    print("|---:|---:|---:|---:|---:|---:|")
    for rows in options.rows or [50_000, 500_000]:
        place = write_vectors(work / f"v{rows}", random_vectors(rows, options.dim))
        out = work / f"i{rows}"
        words = ["index", str(place), "--out", str(out), "--shards", str(max(1, rows // 50_000))]
        took, peaks, _ = watched(words, MEMORY)
        cells = " | ".join(f"{peaks[kind] / 1e6:.0f}" for kind in MEMORY)
        print(f"| {rows:,} | {Index.open(out).num_shards} | {took:.0f} | {cells} |", flush=True)


def latency(options: argparse.Namespace, work: Path) -> None:
    for rows in options.rows or [1_000_000]:
        place = options.vectors or write_vectors(
            work / f"v{rows}", topical_vectors(rows, options.dim)
        )
        card = index_job.run(IndexSpec(vectors=str(place), out=str(work / f"i{rows}"))).card
        for name in ("rows", "shards", "bytes", "build_seconds", "queries_per_second"):
            print(f"{name:20} {getattr(card, name):,}")
        for name in ("single_query_ms", "extrapolated_query_ms"):
            print(f"{name:20} {getattr(card, name)}")
        print(f"recall@10            {card.recall['held']['10']}", flush=True)


# -- quality ---------------------------------------------------------------------------------------


def retrieval(options: argparse.Namespace, work: Path) -> None:
    """The commands a user would give; exact search with the same model beside them."""
    [docs] = options.data.glob("*_docs.parquet")
    queries = docs.with_name(docs.name.replace("_docs", "_queries"))
    qrels = pq.read_table(docs.with_name(docs.name.replace("_docs", "_qrels"))).to_pylist()
    relevant: dict[object, dict[object, float]] = {}
    for row in qrels:
        relevant.setdefault(row["query_id"], {})[row["doc_id"]] = row.get("score", 1.0)
    sbert("embed", docs, "--text", "{title} {text}", "--id-column", "doc_id", "--model",
          options.model, "--out", work / "v")  # fmt: skip
    asked = pq.read_table(queries)
    encoder = Encoder.load(resolve_model(options.model))
    vectors = encoder.encode(asked["text"].to_pylist(), prompt=encoder.query_prompt)
    ids = [batch["id"].to_pylist() for batch in Artifact.open(work / "v").read(["id"])]
    ids = [i for some in ids for i in some]
    best = exact_search(vectors, all_vectors(work / "v"), 10).rows
    found = {
        "exact": {
            q: [ids[r] for r in row]
            for q, row in zip(asked["query_id"].to_pylist(), best, strict=True)
        }
    }
    for kind in options.kinds:
        out = work / kind.replace(":", "-").replace(",", "-")
        sbert("index", work / "v", "--out", out, "--kind", kind)
        found[kind] = hits_of(out, queries, work)
    if options.cross:
        cross = (
            titles_cross(docs, options.model, work) if options.cross == "titles" else options.cross
        )
        found["hnsw, 10 reranked"] = hits_of(
            work / "hnsw", queries, work, "--k", 10, "--rerank", cross
        )
    print("| search | nDCG@10 | MRR@10 |\n|---|---:|---:|")
    order = list(relevant)
    for name, ranked in found.items():
        scores = retrieval_scores([ranked[q] for q in order], [relevant[q] for q in order])
        print(f"| {name} | {scores['ndcg@10']:.2f} | {scores['mrr@10']:.2f} |")


def titles_cross(docs: Path, model: str, work: Path) -> Path:
    """A cross-encoder that learned which abstract a title belongs to; no query was seen."""
    table = pq.read_table(docs)
    titles, texts = table["title"].to_pylist(), table["text"].to_pylist()
    vectors = all_vectors(work / "v")
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(titles), NUM_TITLES, replace=False)
    near = exact_search(vectors[chosen], vectors, 10).rows
    rows = []
    for own, others in zip(chosen.tolist(), near.tolist(), strict=True):
        wrong = rng.choice([other for other in others if other != own], 2, replace=False)
        rows.append({"a": titles[own], "b": texts[own], "score": 1.0})
        rows += [
            {"a": titles[own], "b": texts[n], "score": 0.0} for n in rng.choice(wrong, 2, False)
        ]
    pq.write_table(pa.Table.from_pylist(rows), work / "titles.parquet")
    sbert("prepare", work / "titles.parquet", "--out", work / "shards", "--format", "scored",
          "--columns", "a,b,score")  # fmt: skip
    sbert("train", work / "shards", "--base", model, "--out", work / "cross", "--cross-encoder",
          "--lr", 2e-4, "--max-length", 128)  # fmt: skip
    return work / "cross"


def hits_of(index: Path, queries: Path, work: Path, *options: object) -> dict[object, list[object]]:
    out = work / "hits.parquet"
    sbert("search", index, "--queries", queries, "--id-column", "query_id", "--out", out, *options)
    found: dict[object, list[object]] = {}
    for row in pq.read_table(out).to_pylist():
        found.setdefault(row["query"], []).append(row["id"])
    return found


PARTS = {"build": build, "memory": memory, "latency": latency, "retrieval": retrieval}


if __name__ == "__main__":
    main()
