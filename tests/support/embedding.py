"""Corpora and runs for tests of the embed job."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts.layout import REPLACED
from pipelines.artifacts.reader import Artifact
from pipelines.embed.job import run
from pipelines.embed.spec import EmbedSpec
from support.texts import sentences as sentences


def write_corpus(folder: Path, files: dict[str, dict], **options) -> Path:
    for name, columns in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / name, **options)
    return folder


def rows_of(texts: list, first: int = 0) -> dict:
    """Columns with ids that say where a text came from."""
    return {"id": [f"r{first + i}" for i in range(len(texts))], "text": texts}


def embed(corpus, out, model, **options):
    """One run of the job in this process; with one actor, since each imports torch."""
    options = {"actors": 1, **options}
    return run(EmbedSpec(corpus=str(corpus), out=str(out), model=str(model), **options))


def table_of(out) -> pa.Table:
    artifact = Artifact.open(str(out))
    batches = list(artifact.read())
    return pa.Table.from_batches(batches)


def vectors_of(table: pa.Table) -> np.ndarray:
    column = table["vector"].combine_chunks()
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, column.type.list_size)


def quarantine_of(out) -> list[dict]:
    return [row for batch in Artifact.open(str(out)).quarantined() for row in batch.to_pylist()]


def published_bytes(out: Path) -> dict[str, str]:
    """sha256 of the manifest and of every file it lists; the listed hashes are checked."""
    manifest = (out / "_manifest.json").read_bytes()
    found = {"_manifest.json": hashlib.sha256(manifest).hexdigest()}
    parsed = json.loads(manifest)
    for file in [*parsed["files"], *parsed["quarantine"], *parsed["beside"]]:
        data = (out / file["path"]).read_bytes()
        found[file["path"]] = hashlib.sha256(data).hexdigest()
        assert found[file["path"]] == file["sha256"]
        assert len(data) == file["bytes"]
    return found


def files_of(out: Path) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}


def assert_nothing_but_the_artifact(out: Path, also: tuple[str, ...] = ()) -> None:
    """No temporary file, no stray part, no Ray session."""
    found = {name for name in files_of(out) if not name.startswith(f"{REPLACED}/")}
    assert found - {"_lock", "_run.json", *also} == set(published_bytes(out))
