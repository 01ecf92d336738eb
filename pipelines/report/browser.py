"""Clusters artifact -> clusters to read, points of a map, rows in quarantine."""

import json
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.artifacts.ids import Rows, read_wide_columns
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.sample_texts import Samples
from pipelines.report.sources import Found
from sbert_core.clusters.labels import size_classes
from sbert_core.join.bounded import unit_rows
from sbert_core.vectors.row_ranges import places_of, sampled

KEPT_SHOWN, REMOVED_SHOWN = 2, 5
CLUSTER_CHARS, POINT_CHARS = 240, 110
CLUSTER_BYTES = 2_500_000  # of a page that is to stay below 5 MB
QUARANTINE_SHOWN = 500
COLUMNS = ["id", "threshold", "cluster", "keep", "witness", "cos_to_witness", "reason"]


@dataclass(frozen=True, slots=True)
class Decided:
    """The clusters table at its lowest threshold, by row number."""

    rows: Rows
    samples: Samples
    cluster: np.ndarray
    size: np.ndarray
    keep: np.ndarray
    witness: np.ndarray
    cos: np.ndarray
    reason: pa.Array
    topic: np.ndarray | None
    threshold: float

    @classmethod
    def read(cls, clusters: Artifact, vectors: Artifact) -> "Decided":
        rows = Rows.of(vectors)
        threshold = min(clusters.manifest.spec["thresholds"])
        names = [*COLUMNS, *(["topic"] if "topic" in clusters.manifest.schema else [])]
        table = read_wide_columns(clusters, names)
        own = table.filter(pc.equal(table["threshold"], pa.scalar(threshold, pa.float32())))
        # Both list all rows in the order of the vectors.
        own = own.take(pa.array(rows.place))
        cluster = rows.numbers(own["cluster"]).astype(np.int64)
        return cls(
            rows=rows,
            samples=Samples(vectors, rows),
            cluster=cluster,
            size=np.bincount(cluster, minlength=len(rows))[cluster],
            keep=own["keep"].to_numpy(zero_copy_only=False),
            witness=rows.numbers(own["witness"]),
            cos=own["cos_to_witness"].to_numpy(zero_copy_only=False),
            reason=own["reason"].combine_chunks(),
            topic=own["topic"].to_numpy() if "topic" in names else None,
            threshold=threshold,
        )


def clusters_of(own: Decided, number: int, seed: int) -> dict[str, Any]:
    """The largest clusters and a sample of the others."""
    first = np.flatnonzero((own.cluster == np.arange(len(own.cluster))) & (own.size > 1))
    by_size = first[np.lexsort((first, -own.size[first]))]
    half = number if len(first) <= number else number // 2
    rest = np.random.default_rng(seed).permutation(by_size[half:])[: number - half]
    chosen = np.concatenate([by_size[:half], rest])
    order = np.argsort(own.cluster, kind="stable")
    low = np.searchsorted(own.cluster[order], chosen)
    high = np.searchsorted(own.cluster[order], chosen, side="right")
    parts = []
    for start, end in zip(low.tolist(), high.tolist(), strict=True):
        members = order[start:end]
        kept = members[own.keep[members]][:KEPT_SHOWN]
        removed = members[~own.keep[members]]
        removed = removed[np.argsort(own.cos[removed], kind="stable")][:REMOVED_SHOWN]
        parts.append((kept.tolist(), removed.tolist()))
    wanted = {row for kept, removed in parts for row in (*kept, *removed)}
    wanted |= {int(own.witness[row]) for _, removed in parts for row in removed}
    texts = _texts(own, sorted(wanted), CLUSTER_CHARS)
    items = [
        {
            "id": str(own.rows.ids[cluster].as_py()),
            "rows": int(own.size[cluster]),
            "kept": [_member(own, row, texts, kept) for row in kept],
            "removed": [_member(own, row, texts, kept) for row in removed],
        }
        for cluster, (kept, removed) in zip(chosen.tolist(), parts, strict=True)
    ]
    items = _within_budget(items)
    sizes = size_classes(own.size, own.cluster)
    sizes.pop("1", None)
    said = f"{len(first):,} clusters of two rows and more at cosine {own.threshold:g}"
    if len(first) > len(items):
        said += f"; shown: the {min(half, len(items)):,} largest"
        if len(items) > half:
            said += f" and a sample of {len(items) - half:,} others"
    return {"items": items, "sizes": sizes, "said": said, "total": len(first)}


def _texts(own: Decided, numbers: list[int], chars: int) -> dict[int, str | None]:
    found = own.samples.of(numbers)
    return {
        n: None if text is None else text[:chars] for n, text in zip(numbers, found, strict=True)
    }


def _member(
    own: Decided, row: int, texts: dict[int, str | None], shown: list[int]
) -> dict[str, Any]:
    member = {
        "id": str(own.rows.ids[row].as_py()),
        "text": texts[row],
        "reason": own.reason[row].as_py(),
    }
    if not own.keep[row]:
        witness = int(own.witness[row])
        member |= {
            "cos": round(float(own.cos[row]), 4),
            "witness": str(own.rows.ids[witness].as_py()),
        }
        if witness not in shown:  # else the page has its text already
            member["witness_text"] = texts[witness]
    return member


def _within_budget(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many as fit into the page, whatever the script of their texts."""
    sizes = np.cumsum([len(json.dumps(item, ensure_ascii=False).encode()) for item in items])
    return items[: int(np.searchsorted(sizes, CLUSTER_BYTES, side="right"))]


def map_of(
    own: Decided, vectors: Artifact, names: list[str], number: int, seed: int
) -> dict[str, Any]:
    """A sample of rows in the plane of their two widest directions."""
    side = vectors.table()
    chosen = sampled(side.pieces, number, (seed, 2))
    unit = np.concatenate([unit_rows(side.decoded(piece)) for piece in chosen])
    places = places_of(side.pieces, chosen)
    rows = np.argsort(own.rows.place)[places]
    flat = _plane(unit)
    texts = _texts(own, rows.tolist(), POINT_CHARS)
    if own.topic is not None:
        group, groups = own.topic[rows], names
    else:
        group = np.where(own.size[rows] == 1, 0, np.where(own.keep[rows], 1, 2))
        groups = ["unique", "kept, has duplicates", "removed"]
    points = [
        {
            "x": round(float(x), 4),
            "y": round(float(y), 4),
            "group": int(kind),
            "id": str(own.rows.ids[row].as_py()),
            "text": texts[row],
            "cluster": str(own.rows.ids[int(own.cluster[row])].as_py())
            if own.size[row] > 1
            else None,
        }
        for (x, y), kind, row in zip(flat, group.tolist(), rows.tolist(), strict=True)
    ]
    said = f"{len(points):,} of {len(own.rows):,} rows, drawn at random; near points are alike"
    return {"points": points, "groups": groups, "said": said}


def _plane(unit: np.ndarray) -> np.ndarray:
    """Two principal components, ranked halfway towards even spread, in the unit square."""
    centred = unit - unit.mean(axis=0)
    _, _, directions = np.linalg.svd(centred[: min(len(centred), 4000)], full_matrices=False)
    flat = centred @ directions[:2].T
    if flat.shape[1] < 2:
        flat = np.column_stack([flat, np.zeros(len(flat))])
    rank = np.argsort(np.argsort(flat, axis=0), axis=0) / max(1, len(flat) - 1)
    span = np.maximum(np.ptp(flat, axis=0), 1e-9)
    return 0.03 + 0.94 * (0.5 * rank + 0.5 * (flat - flat.min(axis=0)) / span)


def quarantine_of(found: Found) -> dict[str, Any]:
    if found.vectors is None or not found.vectors.manifest.quarantined:
        return {"items": [], "said": ""}
    rows = (row for batch in found.vectors.quarantined() for row in batch.to_pylist())
    items = [
        {name: str(row.get(name)) for name in ("id", "file", "row", "reason")}
        for row in islice(rows, QUARANTINE_SHOWN)
    ]
    total = found.vectors.manifest.quarantined
    said = f"{total:,} rows have no vector" + (
        f"; the first {len(items):,} are shown" if total > len(items) else ""
    )
    return {"items": items, "said": said}
