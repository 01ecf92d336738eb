"""The clusters artifact at its lowest threshold, joined with the vectors by row number."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.artifacts.ids import IdIndex, read_wide_columns
from pipelines.artifacts.reader import ClustersArtifact, VectorsArtifact
from pipelines.artifacts.sample_texts import SampleTexts
from sbert_core.arrays import BoolArray, Float32Array, Int32Array, Int64Array

COLUMNS = ["id", "threshold", "cluster", "keep", "witness", "cos_to_witness", "reason"]


@dataclass(frozen=True, slots=True)
class ClusterTable:
    """Decisions by row number.

    cluster: number of the cluster's first row. size: rows of the cluster. witness: -1 for kept
    rows. cos: to the witness. topic: None if there are no topics.
    """

    rows: IdIndex
    samples: SampleTexts
    cluster: Int64Array
    size: Int64Array
    keep: BoolArray
    witness: Int32Array
    cos: Float32Array
    reason: pa.Array
    topic: Int32Array | None
    threshold: float

    @classmethod
    def read(cls, clusters: ClustersArtifact, vectors: VectorsArtifact) -> "ClusterTable":
        """Read all rows; both artifacts list them in the order of the vectors."""
        rows = IdIndex.of(vectors)
        threshold = min(clusters.manifest.settings.thresholds)
        names = [*COLUMNS, *(["topic"] if "topic" in clusters.manifest.schema else [])]
        table = read_wide_columns(clusters, names)
        lowest = table.filter(pc.equal(table["threshold"], pa.scalar(threshold, pa.float32())))
        by_id = lowest.take(pa.array(rows.place))
        cluster = rows.lookup(by_id["cluster"]).astype(np.int64)
        return cls(
            rows=rows,
            samples=SampleTexts(vectors, rows),
            cluster=cluster,
            size=np.bincount(cluster, minlength=len(rows))[cluster],
            keep=by_id["keep"].to_numpy(zero_copy_only=False),
            witness=rows.lookup(by_id["witness"]),
            cos=by_id["cos_to_witness"].to_numpy(zero_copy_only=False),
            reason=by_id["reason"].combine_chunks(),
            topic=by_id["topic"].to_numpy() if "topic" in names else None,
            threshold=threshold,
        )

    def id_text(self, row: int) -> str:
        """The id of a row as text."""
        return str(self.rows.ids[row].as_py())

    def read_texts(self, numbers: list[int], num_chars: int) -> dict[int, str | None]:
        """The beginnings of the texts of some rows; None where the corpus has changed."""
        texts = self.samples.for_rows(numbers)
        return {
            n: None if text is None else text[:num_chars]
            for n, text in zip(numbers, texts, strict=True)
        }
