"""Decisions -> `summary.json`: what was removed, clusters by size, the largest with texts."""

import numpy as np
import pyarrow as pa

from pipelines.artifacts.ids import IdIndex
from pipelines.artifacts.sample_texts import SampleTexts
from pipelines.artifacts.sidecars import ClusterSummary, LargeCluster, RemovedExample
from pipelines.cluster.decide import ThresholdClusters
from sbert_core.clusters.labels import REASONS, count_by_size

CLUSTERS_SHOWN = 10
REMOVED_SHOWN = 3


def summarize(own: ThresholdClusters, rows: IdIndex, samples: SampleTexts) -> ClusterSummary:
    """The summary of the clusters at one threshold. samples: texts of the largest ones."""
    kept = int(own.decision.is_kept.sum())
    name, size = own.clusters.name, own.clusters.size
    is_first = name == np.arange(len(name))
    reasons = np.bincount(own.clusters.reason, minlength=len(REASONS)).tolist()
    changes = None
    if own.changes is not None:
        counts = own.changes["change"].value_counts().to_pylist()
        changes = {entry["values"]: entry["counts"] for entry in counts}
    return ClusterSummary(
        threshold=own.threshold,
        rows=len(rows),
        kept=kept,
        removed=len(rows) - kept,
        clusters=int((is_first & (size > 1)).sum()),
        clusters_by_size=count_by_size(size, name),
        rows_by_reason=dict(zip(REASONS, reasons, strict=True)),
        largest=_largest_clusters(own, rows, samples),
        protected_pairs=own.num_protected_pairs,
        protected_pairs_shown=tuple(
            tuple(rows.ids.take(pa.array(pair)).to_pylist()) for pair in own.protected_pairs
        ),
        changes=changes,
        against_fresh=own.against_fresh,
    )


def _largest_clusters(
    own: ThresholdClusters, rows: IdIndex, samples: SampleTexts
) -> tuple[LargeCluster, ...]:
    """The largest clusters, each with some removed rows beside the row they resemble."""
    name, size, decision = own.clusters.name, own.clusters.size, own.decision
    first = np.flatnonzero((name == np.arange(len(name))) & (size > 1))
    first = first[np.lexsort((first, -size[first]))][:CLUSTERS_SHOWN]
    removed = {
        cluster: np.flatnonzero((name == cluster) & ~decision.is_kept)[:REMOVED_SHOWN].tolist()
        for cluster in first.tolist()
    }
    rows_shown = [row for own_rows in removed.values() for row in own_rows]
    rows_shown += decision.witness[rows_shown].tolist()
    texts = dict(zip(rows_shown, samples.for_rows(rows_shown), strict=True))

    def example(row: int) -> RemovedExample:
        witness = int(decision.witness[row])
        return RemovedExample(
            id=rows.ids[row].as_py(),
            text=texts[row],
            witness=rows.ids[witness].as_py(),
            witness_text=texts[witness],
            cos=round(float(decision.cos[row]), 6),
        )

    return tuple(
        LargeCluster(
            cluster=rows.ids[cluster].as_py(),
            rows=int(size[cluster]),
            removed=tuple(example(row) for row in members),
        )
        for cluster, members in removed.items()
    )
