"""Vectors and clusters made by hand: what `apply` reads, without a model or a join."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.formats import read_table
from sbert_core.digest import digest
from sbert_core.vectors.part import put_table
from support.manifests import manifest_of

THRESHOLD = 0.9


def vectors_by_hand(corpus: Path, out: Path, id_column: str | None = "id") -> Path:
    """A vector for every row of a corpus."""
    found = find_corpus(str(corpus))
    tables = {file.path: read_table(found.storage, file) for file in found.files}
    rows = [(path, row) for path, table in tables.items() for row in range(table.num_rows)]
    ids = [f"{path}#{row}" for path, row in rows]
    if id_column is not None:
        ids = [str(value) for table in tables.values() for value in table[id_column].to_pylist()]
    flat = pa.array(np.full(4 * len(rows), 0.5, np.float32))
    columns = {
        "id": ids,
        "vector": pa.FixedSizeListArray.from_arrays(flat, 4),
        "file": [path for path, _ in rows],
        "row": pa.array([row for _, row in rows], pa.int64()),
    }
    made_from = {
        "corpus": found.root,
        "text": "{text}",
        "id_column": id_column,
        "files": [{"path": f.path, "size": f.size, "version": f.version} for f in found.files],
    }
    spec = {"dim": 4, "space": "s", "recipe": "r", "model": "m", "scale": None}
    _publish(out, "vectors", pa.table(columns), spec, made_from, {})
    return out


def clusters_by_hand(vectors: Path, out: Path, removed: set[str]) -> Path:
    """Clusters that remove these ids, and no other."""
    source = Artifact.open(vectors)
    ids = [row["id"] for batch in source.read(["id"]) for row in batch.to_pylist()]
    assert removed <= set(ids)
    columns = {
        "id": ids,
        "threshold": pa.array([THRESHOLD] * len(ids), pa.float32()),
        "keep": [name not in removed for name in ids],
    }
    made_from = {
        "pairs": "none",
        "vectors": str(vectors),
        "corpus_files": [],
        "vectors_files": [file.sha256 for file in source.manifest.files],
    }
    spec = {"thresholds": [THRESHOLD], "method": "leaders", "goal": "g"}
    facts = {"compared_fresh": False, "kept": {}, "removed": {}}
    _publish(out, "clusters", pa.table(columns), spec, made_from, facts)
    return out


def _publish(
    out: Path, kind: str, table: pa.Table, spec: dict, made_from: dict, facts: dict
) -> None:
    generation = digest({"kind": kind, "rows": str(table.to_pylist())})[:16]
    with Writer.claim(out) as writer:
        made = put_table(writer.storage, f"data/{generation}/0", table)
        manifest = manifest_of(
            kind,
            generation=generation,
            schema={field.name: str(field.type) for field in table.schema},
            rows=table.num_rows,
            quarantined=0,
            files=(made,),
            spec=spec,
            made_from=made_from,
            facts=facts,
            versions={},
        )
        writer.publish(manifest, rows_in=table.num_rows, rows_out=manifest.rows, run={})
