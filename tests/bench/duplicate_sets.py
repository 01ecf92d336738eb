"""Public sets of labelled duplicates, and the scores of groupings on the unseen half of each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from duplicate_peers import MinHashes, semhash_groups

from pipelines.artifacts.models import resolve_model
from sbert_core.clusters.components import label_components
from sbert_core.clusters.leaders import select_leaders
from sbert_core.encoder.encoder import Encoder
from sbert_core.evaluation.clustering import group_scores
from sbert_core.join.bounded import Edges, JoinBlock, PcaRotation, cosine_join

COSINES = tuple(round(0.5 + 0.02 * n, 2) for n in range(25))
JACCARDS = tuple(round(0.2 + 0.05 * n, 2) for n in range(16))


@dataclass(frozen=True, slots=True)
class Labelled:
    """group: rows with the same number are duplicates."""

    name: str
    texts: list[str]
    unit: np.ndarray
    group: np.ndarray


def labelled_sets(folder: Path, model: str) -> Iterator[Labelled]:
    encoder = Encoder.load(resolve_model(model))
    for path in sorted(folder.glob("*.parquet")):
        if path.stem.endswith("_matches"):
            continue
        table = pq.read_table(path)
        texts = [text or "-" for text in table["text"].to_pylist()]
        if "cluster" in table.column_names:
            _, group = np.unique(table["cluster"].to_pylist(), return_inverse=True)
        else:
            group = _linked(table["side"].to_pylist(), table["id"].to_pylist(), path)
        unit = encoder.encode(texts)
        yield Labelled(path.stem.removesuffix("_records"), texts, unit, group)


def _linked(sides: list, ids: list, path: Path) -> np.ndarray:
    """Groups of records that matches connect; of two sides each has ids of its own."""
    place = {own: number for number, own in enumerate(zip(sides, ids, strict=True))}
    matches = pq.read_table(path.with_name(path.name.replace("_records", "_matches")))
    first, second = min(sides), max(sides)
    a = np.array([place[first, own] for own in matches["id1"].to_pylist()], np.int32)
    b = np.array([place[second, own] for own in matches["id2"].to_pylist()], np.int32)
    return label_components(Edges(a, b, np.ones(len(a), np.float32)), len(ids))


def grid_scores(own: Labelled) -> dict[str, dict[str, float]]:
    """For each method the threshold of the best F1 on one half, and its scores on the other."""
    rng = np.random.default_rng(0)
    is_first = (rng.random(own.group.max() + 1) < 0.5)[own.group]
    halves = [np.flatnonzero(is_first), np.flatnonzero(~is_first)]
    found: dict[str, dict[str, float]] = {}
    methods: dict[str, tuple[tuple[float, ...], Callable]] = {
        "leaders": (COSINES, _ours("leaders")),
        "components": (COSINES, _ours("components")),
        "semhash": (COSINES, lambda own, rows: lambda t: semhash_groups(own.unit[rows], t)),
        "minhash": (JACCARDS, lambda own, rows: MinHashes([own.texts[r] for r in rows]).groups),
    }
    for name, (levels, prepare) in methods.items():
        tuning, judging = (prepare(own, rows) for rows in halves)
        truth = [own.group[rows] for rows in halves]
        best = max(levels, key=lambda t: group_scores(tuning(t), truth[0]).f1)  # noqa: B023
        scores = group_scores(judging(best), truth[1])
        found[name] = {"f1": scores.f1, "ari": scores.rand, "threshold": best}
    return found


def _ours(method: str) -> Callable:
    def prepare(own: Labelled, rows: np.ndarray) -> Callable[[float], np.ndarray]:
        unit = own.unit[rows]
        rotation = PcaRotation.fit(unit, COSINES[0])
        block = JoinBlock.build(unit, rotation)
        parts = list(cosine_join(block, block, COSINES[0], is_same=True))
        a, b, cos = (np.concatenate([getattr(p, n) for p in parts]) for n in ("a", "b", "cos"))

        def groups(threshold: float) -> np.ndarray:
            reach = cos >= np.float32(threshold)
            edges = Edges(a[reach], b[reach], cos[reach])
            if method == "components":
                return label_components(edges, len(rows))
            return select_leaders(edges, np.arange(len(rows), dtype=np.int32)).canonical

        return groups

    return prepare
