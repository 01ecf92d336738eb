"""Vectors -> files that vector stores load.

In:  a vectors artifact.
Out: a Lance dataset, files for pgvector, or requests for Qdrant. Vectors leave as float32, with the
     id and carried columns beside them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipelines.artifacts.kinds import VECTORS
from pipelines.artifacts.reader import Artifact, VectorsArtifact, typed
from pipelines.export.lance_dataset import write_lance
from pipelines.export.pgvector import write_pgvector
from pipelines.export.qdrant import write_qdrant
from pipelines.export.spec import ExportSpec, VectorStore

WRITERS: dict[VectorStore, Callable[[VectorsArtifact, Path, str], None]] = {
    VectorStore.LANCE: write_lance,
    VectorStore.PGVECTOR: write_pgvector,
    VectorStore.QDRANT: write_qdrant,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """How many rows were written, and where."""

    rows: int
    out: str


def run(spec: ExportSpec) -> ExportReport:
    """Write the files of --to into the new folder --out; ValueError if it is not empty."""
    found = Artifact.open(spec.vectors)
    manifest = typed(found.manifest, VECTORS, spec.vectors, "export takes vectors")
    out = Path(spec.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out {out} exists already; choose a new folder")
    WRITERS[spec.to](Artifact(found.uri, manifest), out, spec.name)
    return ExportReport(rows=manifest.rows, out=str(out))
