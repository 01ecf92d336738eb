"""Vectors and pairs -> cosines of random pairs and of found ones, and what a threshold removes."""

import numpy as np

from pipelines.artifacts.edges import filter_by_cosine, read_edges, read_groups
from pipelines.artifacts.ids import IdIndex, read_column
from pipelines.artifacts.reader import other_pairs
from pipelines.report.sources import ReportSources
from sbert_core.arrays import Int64Array
from sbert_core.clusters.duplicate_groups import collapse_groups, expand_decision
from sbert_core.clusters.leaders import select_leaders
from sbert_core.join.random_pairs import NUM_BINS, sample_cosines
from sbert_core.report.facts import CosineHistogram, CurvePoint
from sbert_core.vectors.row_ranges import sample_rows

SAMPLED_ROWS = 3000  # 4.5 million random pairs
BINS_PER_BAR = 4  # a bar is 0.04 wide
MAX_EDGES = 5_000_000  # above it the curve is left out: it decides all rows nine times
NUM_LEVELS = 9


def make_histogram(found: ReportSources, seed: int) -> CosineHistogram | None:
    """Pairs by cosine: all of a sample of rows and, if there are any, those found.

    None without vectors.
    """
    if found.vectors is None:
        return None
    table = found.vectors.table()
    chosen = sample_rows(table.row_ranges, SAMPLED_ROWS, (seed,))
    sample = sample_cosines(np.concatenate([table.decode(own) for own in chosen]), None)
    sets = {"random pairs": _bars(sample.histogram)}
    limit = None
    note = f"random pairs: all pairs of {sum(own.size for own in chosen):,} sampled rows"
    if found.pairs is not None:
        cos = read_column(found.pairs, "cos").to_numpy(zero_copy_only=False)
        bins = np.clip((cos + 1) * (NUM_BINS / 2), 0, NUM_BINS - 1).astype(np.int64)
        sets["pairs found"] = _bars(np.bincount(bins, minlength=NUM_BINS))
        threshold = found.pairs.manifest.settings.threshold
        limit = (threshold + 1) * NUM_BINS / 2 / BINS_PER_BAR
        note += f"; dashed: the threshold of {threshold:g}"
    labels = tuple(
        f"{2 * BINS_PER_BAR * n / NUM_BINS - 1:.2f}" for n in range(NUM_BINS // BINS_PER_BAR)
    )
    return CosineHistogram(labels=labels, sets=sets, limit=limit, note=note)


def _bars(counts: Int64Array) -> tuple[int, ...]:
    return tuple(counts.reshape(-1, BINS_PER_BAR).sum(axis=1).tolist())


def make_curve(found: ReportSources) -> tuple[CurvePoint, ...]:
    """Pairs and removed rows at thresholds up to 1; rows are kept in the order of their ids.

    Empty without all pairs of one corpus, or if there are too many.
    """
    pairs, vectors = found.pairs, found.vectors
    if pairs is None or vectors is None or pairs.rows > MAX_EDGES:
        return ()
    if other_pairs(pairs.manifest) is not None:
        return ()
    rows = IdIndex.of(vectors)
    edges, groups = read_edges(pairs, rows, None), read_groups(pairs, rows)
    rank = np.arange(len(rows), dtype=np.int32)
    curve = []
    for level in np.linspace(pairs.manifest.settings.threshold, 1.0, NUM_LEVELS):
        kept_edges = filter_by_cosine(edges, level)
        collapsed = collapse_groups(kept_edges, groups, rank, 0)
        decision = expand_decision(select_leaders(collapsed, rank), collapsed, groups, rank, 0)
        removed = int((~decision.is_kept).sum())
        curve.append(CurvePoint(cos=round(float(level), 4), pairs=len(kept_edges), removed=removed))
    return tuple(curve)
