"""A sample of vectors -> points of a map, coloured by topic or by decision."""

from collections.abc import Sequence

import numpy as np

from pipelines.artifacts.reader import VectorsArtifact
from pipelines.report.cluster_table import ClusterTable
from sbert_core.arrays import Float64Array
from sbert_core.join.bounded import normalize_rows
from sbert_core.report.facts import MapPoint, TextMap
from sbert_core.vectors.row_ranges import row_numbers, sample_rows

POINT_CHARS = 110
PLANE_ROWS = 4000  # the directions of the map are those of this many sampled rows
DECISIONS = ("unique", "kept, has duplicates", "removed")


def make_text_map(
    table: ClusterTable, vectors: VectorsArtifact, topics: Sequence[str], number: int, seed: int
) -> TextMap:
    """`number` random rows in the plane of their two widest directions. topics: their names."""
    source = vectors.table()
    chosen = sample_rows(source.row_ranges, number, (seed, 2))
    unit = np.concatenate([normalize_rows(source.decode(own)) for own in chosen])
    rows = np.argsort(table.rows.place)[row_numbers(source.row_ranges, chosen)]
    texts = table.read_texts(rows.tolist(), POINT_CHARS)
    if table.topic is not None:
        group, groups = table.topic[rows], tuple(topics)
    else:
        group = np.where(table.size[rows] == 1, 0, np.where(table.keep[rows], 1, 2))
        groups = DECISIONS
    points = tuple(
        MapPoint(
            x=round(float(x), 4),
            y=round(float(y), 4),
            group=int(kind),
            id=table.id_text(row),
            text=texts[row],
            cluster=table.id_text(int(table.cluster[row])) if table.size[row] > 1 else None,
        )
        for (x, y), kind, row in zip(_plane(unit), group.tolist(), rows.tolist(), strict=True)
    )
    note = f"{len(points):,} of {len(table.rows):,} rows, drawn at random; near points are alike"
    return TextMap(points=points, groups=groups, note=note)


def _plane(unit: Float64Array) -> Float64Array:
    """Two principal components in the unit square, moved halfway towards even spread by rank."""
    centred = unit - unit.mean(axis=0)
    sample = centred[: min(len(centred), PLANE_ROWS)]
    _, _, directions = np.linalg.svd(sample, full_matrices=False)
    flat = centred @ directions[:2].T
    if flat.shape[1] < 2:
        flat = np.column_stack([flat, np.zeros(len(flat))])
    rank = np.argsort(np.argsort(flat, axis=0), axis=0) / max(1, len(flat) - 1)
    span = np.maximum(np.ptp(flat, axis=0), 1e-9)
    plane: Float64Array = 0.03 + 0.94 * (0.5 * rank + 0.5 * (flat - flat.min(axis=0)) / span)
    return plane
