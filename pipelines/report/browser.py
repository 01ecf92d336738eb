"""Clusters to read, with kept and removed rows, and rows in quarantine."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pipelines.report.cluster_table import ClusterTable
from pipelines.report.sources import ReportSources
from sbert_core.arrays import Int64Array
from sbert_core.clusters.labels import count_by_size
from sbert_core.json_record import encode
from sbert_core.report.facts import (
    ClusterItem,
    ClusterList,
    ClusterRow,
    QuarantinedRow,
    QuarantineList,
    RemovedRow,
    RemovedRowWithText,
)

KEPT_SHOWN, REMOVED_SHOWN = 2, 5
CLUSTER_CHARS = 240
CLUSTER_BYTES = 2_500_000  # of a page that is to stay below 5 MB
QUARANTINE_SHOWN = 500


@dataclass(frozen=True, slots=True)
class ShownRows:
    """Rows of one cluster that the page shows."""

    cluster: int
    kept: list[int]
    removed: list[int]


def make_cluster_list(table: ClusterTable, number: int, seed: int) -> ClusterList:
    """The largest clusters and a random sample of the others, `number` in all if they fit."""
    is_first = table.cluster == np.arange(len(table.cluster))
    first = np.flatnonzero(is_first & (table.size > 1))
    by_size = first[np.lexsort((first, -table.size[first]))]
    half = number if len(first) <= number else number // 2
    rest = np.random.default_rng(seed).permutation(by_size[half:])[: number - half]
    shown = _choose_rows(table, np.concatenate([by_size[:half], rest]))
    items = _fit_to_page(_make_items(table, shown))
    sizes = count_by_size(table.size, table.cluster)
    sizes.pop("1", None)
    note = f"{len(first):,} clusters of two rows and more at cosine {table.threshold:g}"
    if len(first) > len(items):
        note += f"; shown: the {min(half, len(items)):,} largest"
        if len(items) > half:
            note += f" and a sample of {len(items) - half:,} others"
    return ClusterList(items=tuple(items), sizes=sizes, note=note, total=len(first))


def _choose_rows(table: ClusterTable, clusters: Int64Array) -> list[ShownRows]:
    """The first kept rows of each cluster, and the removed ones least like their witness."""
    order = np.argsort(table.cluster, kind="stable")
    low = np.searchsorted(table.cluster[order], clusters)
    high = np.searchsorted(table.cluster[order], clusters, side="right")
    shown = []
    for cluster, start, end in zip(clusters.tolist(), low.tolist(), high.tolist(), strict=True):
        members = order[start:end]
        kept = members[table.keep[members]][:KEPT_SHOWN]
        removed = members[~table.keep[members]]
        removed = removed[np.argsort(table.cos[removed], kind="stable")][:REMOVED_SHOWN]
        shown.append(ShownRows(cluster, kept.tolist(), removed.tolist()))
    return shown


def _make_items(table: ClusterTable, shown: Sequence[ShownRows]) -> list[ClusterItem]:
    wanted = {row for own in shown for row in (*own.kept, *own.removed)}
    wanted |= {int(table.witness[row]) for own in shown for row in own.removed}
    texts = table.read_texts(sorted(wanted), CLUSTER_CHARS)
    return [
        ClusterItem(
            id=table.id_text(own.cluster),
            rows=int(table.size[own.cluster]),
            kept=tuple(
                ClusterRow(id=table.id_text(row), text=texts[row], reason=table.reason[row].as_py())
                for row in own.kept
            ),
            removed=tuple(_removed_row(table, row, texts, own.kept) for row in own.removed),
        )
        for own in shown
    ]


def _removed_row(
    table: ClusterTable, row: int, texts: dict[int, str | None], kept: list[int]
) -> RemovedRow:
    """A removed row. kept: rows whose texts the page has already."""
    witness = int(table.witness[row])
    plain = RemovedRow(
        id=table.id_text(row),
        text=texts[row],
        reason=table.reason[row].as_py(),
        cos=round(float(table.cos[row]), 4),
        witness=table.id_text(witness),
    )
    if witness in kept:
        return plain
    return RemovedRowWithText(
        id=plain.id,
        text=plain.text,
        reason=plain.reason,
        cos=plain.cos,
        witness=plain.witness,
        witness_text=texts[witness],
    )


def _fit_to_page(items: list[ClusterItem]) -> list[ClusterItem]:
    """As many as fit into the page: characters of some scripts take three bytes."""
    sizes = [len(json.dumps(encode(item), ensure_ascii=False).encode()) for item in items]
    return items[: int(np.searchsorted(np.cumsum(sizes), CLUSTER_BYTES, side="right"))]


def make_quarantine_list(found: ReportSources) -> QuarantineList:
    """The first rows that have no vector; empty without vectors."""
    if found.vectors is None or not found.vectors.manifest.quarantined:
        return QuarantineList()
    rows = (row for batch in found.vectors.quarantined() for row in batch.to_pylist())
    items = tuple(
        QuarantinedRow(
            id=str(row.get("id")),
            file=str(row.get("file")),
            row=str(row.get("row")),
            reason=str(row.get("reason")),
        )
        for row in islice(rows, QUARANTINE_SHOWN)
    )
    total = found.vectors.manifest.quarantined
    note = f"{total:,} rows have no vector"
    if total > len(items):
        note += f"; the first {len(items):,} are shown"
    return QuarantineList(items=items, note=note)
