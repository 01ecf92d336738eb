"""Pairs and clusters beside peers, by number of rows, at a million rows, and against labels.

Run by `make bench-duplicates`, in the environment of the peers.

    python tests/bench/duplicates.py join --vectors FOLDER   every pair, every cluster, beside peers
    python tests/bench/duplicates.py growth --vectors FOLDER seconds by number of rows
    python tests/bench/duplicates.py million --vectors FOLDER
                                                             a million rows, through cells and all
    python tests/bench/duplicates.py leaders                 ten million rows, 100 million edges
    python tests/bench/duplicates.py update --vectors FOLDER 1 % new rows against the whole join
    python tests/bench/duplicates.py quality --data FOLDER   labelled duplicates, beside peers

All contenders start with the same vectors, in memory or in files; Ray is running before. Everything
uses all cores. Rounds take turns, the best of each counts.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import faiss
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from duplicate_peers import semhash_groups
from duplicate_sets import grid_scores, labelled_sets
from index import all_vectors, seconds
from scale import watched
from support.synthetic import write_vectors

from pipelines.artifacts.reader import Artifact
from pipelines.cluster import job as cluster_job
from pipelines.cluster.spec import ClusterSpec
from pipelines.pairs import job as pairs_job
from pipelines.pairs.spec import PairsSpec
from pipelines.runtime.session import job_session, num_cores
from sbert_core.clusters.leaders import select_leaders
from sbert_core.join.bounded import Edges

BLOCK = 4096
PEAKS = {
    "driver": (b"driver",),
    "join": (b"join_", b"write_", b"true_", b"settle"),
    "": (b"ray::",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=PARTS)
    parser.add_argument("--vectors", type=Path, help="a vectors artifact")
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="sets of labelled duplicates")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--folder", type=Path, help="for temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        PARTS[options.what](options, Path(folder))


# -- beside peers ----------------------------------------------------------------------------------


class Ours:
    """The jobs themselves, with Ray running."""

    def __init__(self, vectors: Path, work: Path) -> None:
        self.vectors = vectors
        self.work = work
        self.number = 0

    def pairs(self, threshold: float, **options: object) -> Path:
        self.number += 1
        out = self.work / f"p{self.number}"
        spec = {"vectors": str(self.vectors), "out": str(out), "threshold": threshold, **options}
        pairs_job.run(PairsSpec(**spec))  # type: ignore[arg-type]
        return out

    def clusters(self, pairs: Path) -> Path:
        out = pairs.with_name(f"{pairs.name}-clusters")
        cluster_job.run(ClusterSpec(pairs=str(pairs), out=str(out)))
        return out


def join(options: argparse.Namespace, work: Path) -> None:
    unit = all_vectors(options.vectors)
    print(f"{len(unit):,} vectors of {unit.shape[1]} dimensions, {num_cores()} cores\n")
    with job_session(str(work), None):
        ours = Ours(options.vectors, work)
        ours.pairs(0.99)  # workers are up
        for threshold in (0.9, 0.8):
            _print_joins(options, ours, unit, threshold)
        _print_clusters(options, ours, unit)


def _print_joins(
    options: argparse.Namespace, ours: Ours, unit: np.ndarray, threshold: float
) -> None:
    from sentence_transformers.util import paraphrase_mining_embeddings

    contenders: dict[str, Callable[[], int]] = {
        "sbert pairs": lambda: num_pairs(ours.pairs(threshold, method="exact")),
        "blocked matmul": lambda: blocked_matmul(unit, threshold),
        "faiss flat range search": lambda: range_search(unit, threshold),
    }
    if threshold == 0.9:
        contenders["sentence-transformers paraphrase mining"] = lambda: sum(
            cos >= threshold for cos, _, _ in paraphrase_mining_embeddings(unit)
        )
    times, found = in_turns(contenders, options.rounds)
    print(f"| all pairs at {threshold:g} | seconds | times ours | pairs |\n|---|---:|---:|---:|")
    first = times["sbert pairs"]
    for name, took in times.items():
        print(f"| {name} | {took:.2f} | {took / first:.2f} | {found[name]:,} |")
    print(flush=True)


def _print_clusters(options: argparse.Namespace, ours: Ours, unit: np.ndarray) -> None:
    from sentence_transformers.util import community_detection

    made: list[Path] = []

    def both() -> int:
        made.append(ours.clusters(ours.pairs(0.9, method="exact")))
        return num_kept(made[-1])

    contenders = {
        "sbert pairs + cluster": both,
        "semhash, index and self_deduplicate": lambda: semhash_kept(unit, 0.9),
        "sentence-transformers community detection": lambda: (
            len(unit)
            - sum(
                len(c) - 1 for c in community_detection(unit, threshold=0.9, min_community_size=2)
            )
        ),
    }
    times, found = in_turns(contenders, options.rounds)
    print("| rows kept at 0.9 | seconds | times ours | kept |\n|---|---:|---:|---:|")
    first = times["sbert pairs + cluster"]
    for name, took in times.items():
        print(f"| {name} | {took:.2f} | {took / first:.2f} | {found[name]:,} |")
    phases = json.loads((made[-1] / "_run.json").read_text())["phases"]
    print(f"\ncluster alone: {', '.join(f'{k} {v:.2f} s' for k, v in phases.items())}", flush=True)


def in_turns(
    contenders: dict[str, Callable[[], int]], rounds: int
) -> tuple[dict[str, float], dict[str, int]]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    found: dict[str, int] = {}
    for _ in range(rounds):
        for name, call in contenders.items():
            start = time.perf_counter()
            found[name] = call()
            times[name].append(time.perf_counter() - start)
    return {name: min(own) for name, own in times.items()}, found


def blocked_matmul(unit: np.ndarray, threshold: float) -> int:
    """All products, two blocks at a time; what reaches the threshold is looked up."""
    total = 0
    for i in range(0, len(unit), BLOCK):
        for j in range(i, len(unit), BLOCK):
            cos = unit[i : i + BLOCK] @ unit[j : j + BLOCK].T
            a, b = np.nonzero(cos >= np.float32(threshold))
            total += int((a < b).sum()) if i == j else len(a)
    return total


def range_search(unit: np.ndarray, threshold: float) -> int:
    faiss.omp_set_num_threads(num_cores())
    index = faiss.IndexFlatIP(unit.shape[1])
    index.add(unit)
    limits, _, rows = index.range_search(unit, float(np.nextafter(np.float32(threshold), 0)))
    asked = np.repeat(np.arange(len(unit)), np.diff(limits.astype(np.int64)))
    return int((asked < rows).sum())


def semhash_kept(unit: np.ndarray, threshold: float) -> int:
    return len(np.unique(semhash_groups(unit, threshold)))


def num_pairs(out: Path) -> int:
    return Artifact.open(out).rows


def num_kept(out: Path) -> int:
    return sum(Artifact.open(out).manifest.metrics.kept.values())


# -- by number of rows -----------------------------------------------------------------------------


def perturbed(unit: np.ndarray, rows: int, seed: int = 0) -> Iterable[np.ndarray]:
    """The vectors themselves, then copies of random ones with noise: cosines of 0.8 to 1."""
    rng = np.random.default_rng(seed)
    for first in range(0, rows, 16_384):
        size = min(16_384, rows - first)
        if first + size <= len(unit):
            yield unit[first : first + size]
            continue
        own = unit[rng.integers(0, len(unit), size)]
        noise = rng.standard_normal(own.shape, np.float32) / np.sqrt(own.shape[1])
        moved = own + noise * rng.uniform(0.1, 0.75, (size, 1)).astype(np.float32)
        yield moved / np.linalg.norm(moved, axis=1, keepdims=True)


def growth(options: argparse.Namespace, work: Path) -> None:
    unit = all_vectors(options.vectors)
    sizes = options.rows or [20_000, 40_000, 80_000]
    print("| rows | exact s | exponent | cells s | exponent | pairs | recall at least |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    last: tuple[int, float, float] | None = None
    with job_session(str(work), None):
        for rows in sizes:
            vectors = write_vectors(work / f"v{rows}", perturbed(unit, rows))
            ours = Ours(vectors, work / f"g{rows}")
            ours.pairs(0.99)
            exact = seconds(lambda own=ours: own.pairs(0.9, method="exact"))
            start = time.perf_counter()
            cells = ours.pairs(0.9, method="ivf")
            took = time.perf_counter() - start
            certificate = Artifact.open(cells).manifest.metrics.certificate
            power = ["", ""]
            if last is not None:
                step = np.log(rows / last[0])
                power = [
                    f"{np.log(exact / last[1]) / step:.2f}",
                    f"{np.log(took / last[2]) / step:.2f}",
                ]
            last = (rows, exact, took)
            print(
                f"| {rows:,} | {exact:.1f} | {power[0]} | {took:.1f} | {power[1]} | "
                f"{num_pairs(cells):,} | {certificate['low']:.4f} |",
                flush=True,
            )


def million(options: argparse.Namespace, work: Path) -> None:
    """The commands of a user, memory watched; the true recall from the exact run."""
    unit = all_vectors(options.vectors)
    [rows] = options.rows or [1_000_000]
    vectors = write_vectors(work / "v", perturbed(unit, rows))
    found = {}
    print("| method | pairs s | cluster s | pairs | kept | peak private MB: driver | tasks |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for method in ("ivf", "exact"):
        out = work / method
        words = ["pairs", str(vectors), "--out", str(out), "--threshold", "0.9", "--method", method]
        took, peaks, said = watched(words, PEAKS)
        found[method] = said
        clusters = work / f"{method}-clusters"
        own, more, _ = watched(["cluster", str(out), "--out", str(clusters)], PEAKS)
        driver = max(peaks["driver"], more["driver"]) / 1e6
        print(
            f"| {method} | {took:.0f} | {own:.0f} | {num_pairs(out):,} | {num_kept(clusters):,} | "
            f"{driver:.0f} | {max(peaks['join'], peaks['']) / 1e6:.0f} |",
            flush=True,
        )
    truth = Artifact.open(work / "exact")
    near = sum(int((b["cos"].to_numpy() < 1).sum()) for b in truth.read(["cos"]))
    cells = Artifact.open(work / "ivf")
    own = sum(int((b["cos"].to_numpy() < 1).sum()) for b in cells.read(["cos"]))
    certificate = cells.manifest.metrics.certificate
    print(f"\ncertificate {certificate['value']:.5f}, at least {certificate['low']:.5f}")
    print(f"true recall {own / near:.5f} of {near:,} pairs of different vectors", flush=True)


def update(options: argparse.Namespace, work: Path) -> None:
    """1 % new rows: what joining them costs, next to joining everything."""
    [rows] = options.rows or [300_000]
    few = rows // 100
    blocks = list(perturbed(all_vectors(options.vectors), rows))
    assert len(blocks[-1]) > few
    old, new = [*blocks[:-1], blocks[-1][:-few]], blocks[-1][-few:]
    with job_session(str(work), None):
        vectors = write_vectors(work / "v", old)
        ours = Ours(vectors, work)
        ours.pairs(0.99)  # workers are up
        start = time.perf_counter()
        out = ours.pairs(0.9, method="exact")
        whole = time.perf_counter() - start
        write_vectors(work / "v", [*old, new])
        spec = PairsSpec(vectors=str(vectors), out=str(out), threshold=0.9, method="exact")
        took = seconds(lambda: pairs_job.run(spec))
        run = json.loads((out / "_run.json").read_text())["phases"]
    print(f"{rows:,} rows: whole join {whole:.1f} s")
    print(f"{few:,} new rows: {took:.2f} s ({took / whole:.1%})")
    print(f"of which {', '.join(f'{k} {v:.2f} s' for k, v in run.items())}")


def leaders_alone(options: argparse.Namespace, work: Path) -> None:
    """Chains, stars and heaps of rows; memory of the process that decides."""
    del work
    [rows] = options.rows or [10_000_000]
    rng = np.random.default_rng(0)
    number = 10 * rows
    a = rng.integers(0, rows, number, np.int32)
    b = np.minimum(a + rng.geometric(0.02, number).astype(np.int32), rows - 1)
    keep = a < b
    edges = Edges(a[keep], b[keep], rng.uniform(0.9, 1, int(keep.sum())).astype(np.float32))
    del a, b, keep
    rank = rng.permutation(rows).astype(np.int32)
    start = time.perf_counter()
    decision = select_leaders(edges, rank)
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{rows:,} rows, {len(edges):,} edges: {took:.1f} s, {peak:.2f} GiB at most")
    print(f"{int(decision.is_kept.sum()):,} kept")


# -- against labels --------------------------------------------------------------------------------


def quality(options: argparse.Namespace, work: Path) -> None:
    """Thresholds chosen on half of the groups, scored on the other half."""
    del work
    print("| set | rows | | sbert leaders | components | semhash | MinHash |")
    print("|---|---:|---|---:|---:|---:|---:|")
    for own in labelled_sets(options.data, options.model):
        scores = grid_scores(own)
        for measure in ("f1", "ari"):
            cells = " | ".join(f"{score[measure]:.1f}" for score in scores.values())
            print(f"| {own.name} | {len(own.group):,} | {measure} | {cells} |", flush=True)
        chosen = ", ".join(f"{name} {score['threshold']:g}" for name, score in scores.items())
        print(f"| | | thresholds | {chosen} |", flush=True)


PARTS = {
    "join": join,
    "growth": growth,
    "million": million,
    "update": update,
    "leaders": leaders_alone,
    "quality": quality,
}


if __name__ == "__main__":
    main()
