"""Decisions -> tables of clusters, lists of kept ids, the list of changes."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pipelines.artifacts.ids import IdIndex
from pipelines.artifacts.layout import CHANGES, KEEP
from pipelines.cluster.decide import ThresholdClusters
from sbert_core.arrays import Int32Array, Int64Array
from sbert_core.clusters.labels import REASONS
from sbert_core.corpus.published import DATA
from sbert_core.data_file import DataFile
from sbert_core.storage import Storage
from sbert_core.vectors.part import put_table

PART_ROWS = 1_000_000


def write_clusters(
    storage: Storage,
    generation: str,
    decided: Iterable[ThresholdClusters],
    rows: IdIndex,
    topic: Int32Array | None,
) -> list[DataFile]:
    """Write all rows in the order of the vectors, one threshold after the other.

    topic: of each row, by position in the vectors.
    """
    by_place = np.argsort(rows.place)
    files: list[DataFile] = []
    for own in decided:
        for start in range(0, max(1, len(rows)), PART_ROWS):
            number = by_place[start : start + PART_ROWS]
            table = _table(own, rows, number, topic)
            name = f"{DATA}/{generation}/{len(files):06d}"
            made = put_table(storage, name, table)
            files.append(made.made_from(threshold=own.threshold))
    return files


def write_kept_ids(
    storage: Storage, generation: str, decided: Iterable[ThresholdClusters], rows: IdIndex
) -> list[DataFile]:
    """Write the kept ids, a file for each threshold."""
    by_place = np.argsort(rows.place)
    files: list[DataFile] = []
    for own in decided:
        kept = by_place[own.decision.is_kept[by_place]]
        table = pa.table({"id": rows.published_ids(kept)})
        made = put_table(storage, f"{KEEP}/{generation}/{own.threshold:g}", table)
        files.append(made.made_from(threshold=own.threshold))
    return files


def write_changes(
    storage: Storage, generation: str, decided: Iterable[ThresholdClusters]
) -> list[DataFile]:
    """Write what an update changed at all thresholds as one file; none for a first run."""
    tables = [own.changes for own in decided if own.changes is not None]
    if not tables:
        return []
    made = put_table(storage, f"{CHANGES}/{generation}/changes", pa.concat_tables(tables))
    return [made]


def _table(
    own: ThresholdClusters, rows: IdIndex, number: Int64Array, topic: Int32Array | None
) -> pa.Table:
    decision, clusters = own.decision, own.clusters
    is_kept = decision.is_kept[number]
    witness = pa.array(np.where(is_kept, 0, decision.witness[number]), mask=is_kept)
    cos = pa.array(decision.cos[number].astype(np.float32), mask=is_kept)
    reason = pa.DictionaryArray.from_arrays(pa.array(clusters.reason[number]), pa.array(REASONS))
    columns = {
        "id": rows.published_ids(number),
        "threshold": pa.repeat(pa.scalar(own.threshold, pa.float32()), len(number)),
        "cluster": rows.published_ids(clusters.name[number]),
        "canonical": rows.published_ids(decision.canonical[number]),
        "keep": pa.array(is_kept),
        "witness": rows.published_ids(witness),
        "cos_to_witness": cos,
        "reason": reason.cast(pa.string()),
    }
    if topic is not None:
        columns["topic"] = pa.array(topic[rows.place[number]])
    return pa.table(columns)
