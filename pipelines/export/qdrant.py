"""Vectors -> request bodies for Qdrant's REST interface, and a script that sends them.

Qdrant has no file format that other programs may write.
"""

import json
import math
import uuid
from pathlib import Path

import pyarrow as pa

from pipelines.artifacts.reader import VectorsArtifact
from pipelines.export.rows import exported_columns, float_batches
from sbert_core.vectors.block import vector_matrix

# UUIDs of points are UUIDv5 of the id in this namespace, which no other system uses.
NAMESPACE = uuid.UUID("5f2a1f0e-5f0b-5c53-9a53-7bd0ad4d3f6e")
POINTS_PER_REQUEST = 512


def write_qdrant(artifact: VectorsArtifact, out: Path, name: str) -> None:
    """Write collection.json, points-*.json and load.sh. name: of the collection."""
    out.mkdir(parents=True, exist_ok=True)
    size = {"vectors": {"size": artifact.manifest.settings.dim, "distance": "Cosine"}}
    (out / "collection.json").write_text(json.dumps(size) + "\n", encoding="utf-8")
    columns = list(exported_columns(artifact))
    num_files = 0
    for batch in float_batches(artifact):
        for start in range(0, batch.num_rows, POINTS_PER_REQUEST):
            text = _request_body(batch.slice(start, POINTS_PER_REQUEST), columns)
            (out / f"points-{num_files:06d}.json").write_text(text, encoding="utf-8")
            num_files += 1
    points = 'for file in points-*.json; do send "$file" "$url/points?wait=true"; done\n'
    (out / "load.sh").write_text(
        "#!/bin/sh\n# usage: ./load.sh http://localhost:6333\nset -e\n"
        f'url="$1/collections/{name}"\n'
        'send() { curl -fsS -X PUT -H "Content-Type: application/json" '
        '--data-binary "@$1" "$2"; }\n'
        f'send collection.json "$url"\n{points if num_files else ""}',
        encoding="utf-8",
    )


def _request_body(rows: pa.RecordBatch, columns: list[str]) -> str:
    payloads = [
        {name: _finite(value) for name, value in row.items()}
        for row in rows.select(columns).to_pylist()
    ]
    body = {
        "batch": {
            "ids": [point_id(row["id"]) for row in payloads],
            "vectors": vector_matrix(rows.column("vector")).tolist(),
            "payloads": payloads,
        }
    }
    return json.dumps(body, ensure_ascii=False, default=str, allow_nan=False)


def _finite(value: object) -> object:
    """The value with null for NaN and infinities, which JSON cannot express."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(own) for name, own in value.items()}
    return [_finite(own) for own in value] if isinstance(value, list | tuple) else value


def point_id(value: object) -> int | str:
    """The id of a point: Qdrant takes integers from 0 up and UUIDs, so others become a UUID."""
    if isinstance(value, int) and value >= 0:
        return value
    return str(uuid.uuid5(NAMESPACE, str(value)))
