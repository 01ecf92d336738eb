"""Vectors -> files that vector stores load.

In:  a vectors artifact.
Out: a Lance dataset; COPY files and SQL for pgvector; request bodies for Qdrant's REST interface,
     which has no file format of its own. Vectors leave decoded, carried columns beside them.
"""

import json
import math
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.artifacts.reader import Artifact
from pipelines.export.spec import ExportSpec
from sbert_core.storage import storage_at
from sbert_core.vectors.block import vectors_of
from sbert_core.vectors.quantize import decoded
from sbert_core.vectors.reader import columns_schema

# Names of texts in no other system's space: UUIDv5 of the id below this one.
NAMESPACE = uuid.UUID("5f2a1f0e-5f0b-5c53-9a53-7bd0ad4d3f6e")
LEFT_OUT = ("vector", "content_hash")
POINTS_PER_REQUEST = 512
POSTGRES_TYPES = {
    "string": "text",
    "large_string": "text",
    "bool": "boolean",
    "double": "double precision",
    "float": "real",
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "date32[day]": "date",
}


def run(spec: ExportSpec) -> tuple[int, str]:
    """Write the files; how many rows, and where."""
    artifact = Artifact.open(spec.vectors)
    if artifact.manifest.kind != "vectors":
        raise ValueError(f"{spec.vectors} holds {artifact.manifest.kind}; export takes vectors")
    out = Path(spec.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out {out} exists already; choose a new folder")
    WRITERS[spec.to](artifact, out, spec.name)
    return artifact.rows, str(out)


def _batches(artifact: Artifact) -> Iterator[pa.RecordBatch]:
    """Record batches with float32 vectors, whatever they are stored as."""
    scale = artifact.manifest.spec["scale"]
    for batch in artifact.read():
        vectors = decoded(vectors_of(batch.column("vector")), scale)
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        place = batch.schema.get_field_index("vector")
        yield batch.set_column(place, "vector", column)


def _lance(artifact: Artifact, out: Path, name: str) -> None:
    del name  # a Lance dataset is named by its folder
    if find_spec("lance") is None:
        raise ValueError("writing Lance needs the package pylance; remedy: pip install pylance")
    import lance  # noqa: PLC0415 - an optional package

    schema = columns_schema(storage_at(artifact.uri), artifact.manifest.files[0].path)
    vector = pa.field("vector", pa.list_(pa.float32(), artifact.manifest.spec["dim"]))
    schema = schema.set(schema.get_field_index("vector"), vector)
    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, _batches(artifact)), str(out))


def _pgvector(artifact: Artifact, out: Path, name: str) -> None:
    columns = _columns(artifact)
    unknown = [f"{c} ({kind})" for c, kind in columns.items() if kind not in POSTGRES_TYPES]
    if unknown:
        raise ValueError(f"no PostgreSQL type for {', '.join(unknown)}; carry other columns")
    for column in columns:
        if set(column) & set("\n\r\0"):
            raise ValueError(f"column {column!r} has a name psql cannot read; carry other columns")
    out.mkdir(parents=True, exist_ok=True)
    dim = artifact.manifest.spec["dim"]
    fields = [f"{_quoted(c)} {POSTGRES_TYPES[kind]}" for c, kind in columns.items()]
    fields[0] += " PRIMARY KEY"
    lines = ",\n  ".join([*fields, f'"vector" vector({dim})'])
    names = ", ".join(map(_quoted, [*columns, "vector"]))
    (out / "load.sql").write_text(
        f'CREATE EXTENSION IF NOT EXISTS vector;\nCREATE TABLE "{name}" (\n  {lines}\n);\n'
        f"\\copy \"{name}\" ({names}) FROM 'rows.copy'\n",
        encoding="utf-8",
    )
    with (out / "rows.copy").open("w", encoding="utf-8", newline="\n") as file:
        for batch in _batches(artifact):
            vectors = vectors_of(batch.column("vector"))
            for row, vector in zip(batch.select(list(columns)).to_pylist(), vectors, strict=True):
                numbers = ",".join(map(repr, vector.tolist()))
                file.write("\t".join([*map(_copied, row.values()), f"[{numbers}]"]) + "\n")


def _quoted(name: str) -> str:
    """An identifier of SQL."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _copied(value: object) -> str:
    """A value in PostgreSQL's COPY text format."""
    if value is None:
        return r"\N"
    if isinstance(value, bool):
        return "t" if value else "f"
    text = str(value).replace("\0", "")  # PostgreSQL's text holds no NUL
    for plain, escaped in (("\\", r"\\"), ("\t", r"\t"), ("\n", r"\n"), ("\r", r"\r")):
        text = text.replace(plain, escaped)
    return text


def _qdrant(artifact: Artifact, out: Path, name: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    size = {"vectors": {"size": artifact.manifest.spec["dim"], "distance": "Cosine"}}
    (out / "collection.json").write_text(json.dumps(size) + "\n", encoding="utf-8")
    columns = list(_columns(artifact))
    number = 0
    for batch in _batches(artifact):
        for start in range(0, batch.num_rows, POINTS_PER_REQUEST):
            piece = batch.slice(start, POINTS_PER_REQUEST)
            payloads = [_finite(row) for row in piece.select(columns).to_pylist()]
            body = {
                "batch": {
                    "ids": [point_id(row["id"]) for row in payloads],
                    "vectors": vectors_of(piece.column("vector")).tolist(),
                    "payloads": payloads,
                }
            }
            text = json.dumps(body, ensure_ascii=False, default=str, allow_nan=False)
            (out / f"points-{number:06d}.json").write_text(text, encoding="utf-8")
            number += 1
    points = 'for file in points-*.json; do send "$file" "$url/points?wait=true"; done\n'
    (out / "load.sh").write_text(
        "#!/bin/sh\n# usage: ./load.sh http://localhost:6333\nset -e\n"
        f'url="$1/collections/{name}"\n'
        'send() { curl -fsS -X PUT -H "Content-Type: application/json" '
        '--data-binary "@$1" "$2"; }\n'
        f'send collection.json "$url"\n{points if number else ""}',
        encoding="utf-8",
    )


def _finite(value: Any) -> Any:  # noqa: ANN401
    """The value with null for numbers that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(own) for name, own in value.items()}
    return [_finite(own) for own in value] if isinstance(value, list | tuple) else value


def point_id(value: object) -> int | str:
    """Qdrant knows whole numbers from 0 and UUIDs; other ids get a UUID made from their text."""
    if isinstance(value, int) and value >= 0:
        return value
    return str(uuid.uuid5(NAMESPACE, str(value)))


def _columns(artifact: Artifact) -> dict[str, str]:
    schema = artifact.manifest.schema
    return {name: kind for name, kind in schema.items() if name not in LEFT_OUT}


WRITERS: dict[str, Callable[[Artifact, Path, str], None]] = {
    "lance": _lance,
    "pgvector": _pgvector,
    "qdrant": _qdrant,
}
