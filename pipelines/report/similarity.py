"""Vectors and pairs -> how alike rows are, by chance and in pairs, and what a threshold removes."""

from typing import Any

import numpy as np

from pipelines.artifacts.edges import read_edges, read_groups
from pipelines.artifacts.ids import Rows, read_column
from pipelines.report.sources import Found
from sbert_core.clusters.duplicate_groups import spoken_for, with_members
from sbert_core.clusters.leaders import leaders
from sbert_core.join.bounded import Edges
from sbert_core.join.random_pairs import BINS, by_chance
from sbert_core.vectors.row_ranges import sampled

SAMPLED_ROWS = 3000
WIDE = 4  # bins of a bar: 0.04
MOST_EDGES = 5_000_000
LEVELS = 9


def similarity_of(found: Found, seed: int) -> dict[str, Any] | None:
    if found.vectors is None:
        return None
    side = found.vectors.table()
    chosen = sampled(side.pieces, SAMPLED_ROWS, (seed,))
    chance = by_chance(np.concatenate([side.decoded(piece) for piece in chosen]), None)
    sets = {"random pairs": _bars(chance.count)}
    limit, said = None, f"random pairs: all pairs of {sum(p.size for p in chosen):,} sampled rows"
    if found.pairs is not None:
        cos = read_column(found.pairs, "cos").to_numpy(zero_copy_only=False)
        bins = np.clip((cos + 1) * (BINS / 2), 0, BINS - 1).astype(np.int64)
        sets["pairs found"] = _bars(np.bincount(bins, minlength=BINS))
        threshold = found.pairs.manifest.spec["threshold"]
        limit = (threshold + 1) * BINS / 2 / WIDE
        said += f"; dashed: the threshold of {threshold:g}"
    labels = [f"{2 * WIDE * n / BINS - 1:.2f}" for n in range(BINS // WIDE)]
    return {"labels": labels, "sets": sets, "limit": limit, "said": said}


def _bars(count: np.ndarray) -> list[int]:
    return count.reshape(-1, WIDE).sum(axis=1).tolist()


def curve_of(found: Found) -> list[dict[str, Any]]:
    """Pairs and removed rows at thresholds up to 1; rows are kept in the order of their ids."""
    pairs, vectors = found.pairs, found.vectors
    if pairs is None or vectors is None or pairs.rows > MOST_EDGES:
        return []
    if "b" in pairs.manifest.made_from or pairs.manifest.spec["top_k"] is not None:
        return []
    rows = Rows.of(vectors)
    edges, groups = read_edges(pairs, rows, None), read_groups(pairs, rows)
    rank = np.arange(len(rows), dtype=np.int32)
    curve = []
    for level in np.linspace(pairs.manifest.spec["threshold"], 1.0, LEVELS):
        reach = edges.cos >= np.float32(level)
        own = Edges(edges.a[reach], edges.b[reach], edges.cos[reach])
        spoken = spoken_for(own, groups, rank, 0)
        decision = with_members(leaders(spoken, rank), spoken, groups, rank, 0)
        removed = int((~decision.is_kept).sum())
        curve.append({"cos": round(float(level), 4), "pairs": len(own), "removed": removed})
    return curve
