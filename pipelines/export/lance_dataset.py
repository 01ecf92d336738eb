"""Vectors -> a Lance dataset."""

from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

from pipelines.artifacts.reader import VectorsArtifact
from pipelines.export.rows import float_batches
from sbert_core.storage import storage_at
from sbert_core.vectors.reader import read_part_schema


def write_lance(artifact: VectorsArtifact, out: Path, name: str) -> None:
    """Write the dataset `out`; ValueError without the package pylance."""
    del name  # a Lance dataset is named by its folder
    if find_spec("lance") is None:
        raise ValueError("writing Lance needs the package pylance; remedy: pip install pylance")
    import lance  # noqa: PLC0415 - an optional package

    schema = read_part_schema(storage_at(artifact.uri), artifact.manifest.files[0].path)
    vector = pa.field("vector", pa.list_(pa.float32(), artifact.manifest.settings.dim))
    schema = schema.set(schema.get_field_index("vector"), vector)
    batches = pa.RecordBatchReader.from_batches(schema, float_batches(artifact))
    lance.write_dataset(batches, str(out))
