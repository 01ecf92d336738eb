"""Rows of a vectors artifact as vector stores take them."""

from collections.abc import Iterator

import pyarrow as pa

from pipelines.artifacts.reader import VectorsArtifact
from sbert_core.vectors.block import vector_matrix
from sbert_core.vectors.quantize import dequantize

NOT_EXPORTED = ("vector", "content_hash")


def float_batches(artifact: VectorsArtifact) -> Iterator[pa.RecordBatch]:
    """Record batches with float32 vectors, whatever type they are stored as."""
    scale = artifact.manifest.settings.scale
    for batch in artifact.read():
        vectors = dequantize(vector_matrix(batch.column("vector")), scale)
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        position = batch.schema.get_field_index("vector")
        yield batch.set_column(position, "vector", column)


def exported_columns(artifact: VectorsArtifact) -> dict[str, str]:
    """Name and Arrow type of every column that goes beside the vector; the id comes first."""
    schema = artifact.manifest.schema
    return {name: kind for name, kind in schema.items() if name not in NOT_EXPORTED}
