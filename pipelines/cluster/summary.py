"""Decisions -> `summary.json`: what was removed, clusters by size, the largest with texts."""

from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.artifacts.ids import Rows
from pipelines.artifacts.sample_texts import Samples
from pipelines.cluster.decide import Decided
from sbert_core.clusters.labels import REASONS, size_classes

LARGEST = 10
MEMBERS = 3


def summary_of(own: Decided, rows: Rows, samples: Samples) -> dict[str, Any]:
    kept = int(own.decision.is_kept.sum())
    name, size = own.clusters.name, own.clusters.size
    is_first = name == np.arange(len(name))
    reasons = np.bincount(own.clusters.reason, minlength=len(REASONS)).tolist()
    found: dict[str, Any] = {
        "threshold": own.threshold,
        "rows": len(rows),
        "kept": kept,
        "removed": len(rows) - kept,
        "clusters": int((is_first & (size > 1)).sum()),
        "clusters_by_size": size_classes(size, name),
        "rows_by_reason": dict(zip(REASONS, reasons, strict=True)),
        "largest": _largest(own, rows, samples),
        "protected_pairs": own.num_protected_pairs,
        "protected_pairs_shown": [
            rows.ids.take(pa.array(pair)).to_pylist() for pair in own.protected_pairs
        ],
    }
    if own.changes is not None:
        words = own.changes["change"].value_counts().to_pylist()
        found["changes"] = {entry["values"]: entry["counts"] for entry in words}
    if own.against_fresh is not None:
        found["against_fresh"] = own.against_fresh
    return found


def _largest(own: Decided, rows: Rows, samples: Samples) -> list[dict[str, Any]]:
    """The largest clusters, each with some removed rows beside the row they resemble."""
    name, size, decision = own.clusters.name, own.clusters.size, own.decision
    first = np.flatnonzero((name == np.arange(len(name))) & (size > 1))
    first = first[np.lexsort((first, -size[first]))][:LARGEST]
    removed = {
        cluster: np.flatnonzero((name == cluster) & ~decision.is_kept)[:MEMBERS].tolist()
        for cluster in first.tolist()
    }
    rows_shown = [row for own_rows in removed.values() for row in own_rows]
    rows_shown += decision.witness[rows_shown].tolist()
    texts = dict(zip(rows_shown, samples.of(rows_shown), strict=True))

    def shown(row: int) -> dict[str, Any]:
        witness = int(decision.witness[row])
        return {
            "id": rows.ids[row].as_py(),
            "text": texts[row],
            "witness": rows.ids[witness].as_py(),
            "witness_text": texts[witness],
            "cos": round(float(decision.cos[row]), 6),
        }

    return [
        {
            "cluster": rows.ids[cluster].as_py(),
            "rows": int(size[cluster]),
            "removed": [shown(row) for row in members],
        }
        for cluster, members in removed.items()
    ]
