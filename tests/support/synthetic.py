"""A vectors artifact made of given vectors, without a model or a corpus behind it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.artifacts.manifest import library_versions
from pipelines.artifacts.writer import Writer
from sbert_core.corpus.parquet import content_hash
from sbert_core.vectors.part import HASH, put_table
from support.manifests import manifest_of

PART_ROWS = 16_384
TOPICS = 1000


def write_vectors(
    out: Path,
    blocks: Iterable[np.ndarray],
    space: str = "made up",
    ids: Sequence[pa.Array] | None = None,
) -> Path:
    """One part for each block; ids count rows, unless those of each block are given."""
    files, first, dim = [], 0, 0
    with Writer.claim(out) as writer:
        for number, vectors in enumerate(blocks):
            table = _table(np.asarray(vectors, np.float32), first if ids is None else 0)
            if ids is not None:
                table = table.set_column(0, "id", ids[number])
            path = f"data/made/{number:06d}"
            files.append(put_table(writer.storage, path, table).made_from(file="-"))
            first, dim = first + table.num_rows, vectors.shape[1]
        manifest = manifest_of(
            "vectors",
            generation="made",
            schema={field.name: str(field.type) for field in table.schema},
            rows=first,
            quarantined=0,
            files=tuple(files),
            spec={"dim": dim, "space": space, "recipe": space, "model": "none", "scale": None},
            made_from={
                "corpus": "made up",
                "files": [{"path": "-", "size": 0, "version": "0"}],
                "text": "{text}",
                "id_column": "id",
            },
            facts={},
            versions=library_versions(),
        )
        writer.publish(manifest, rows_in=first, rows_out=manifest.rows, run={})
    return out


def _table(vectors: np.ndarray, first: int) -> pa.Table:
    ids = np.arange(first, first + len(vectors))
    return pa.table(
        {
            "id": ids,
            "vector": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1]),
            "content_hash": pa.array([content_hash(str(i)) for i in ids], HASH),
            "file": pa.array(["-"] * len(ids)),
            "row": ids,
            "num_chars": pa.array(ids * 7 % 13, pa.int64()),
            "parity": pa.array(np.where(ids % 2, "odd", "even")),
        }
    )


def random_vectors(num_rows: int, dim: int, seed: int = 0) -> Iterable[np.ndarray]:
    """Blocks without structure: the hardest case of a graph."""
    rng = np.random.default_rng(seed)
    for first in range(0, num_rows, PART_ROWS):
        yield _unit(rng.standard_normal((min(PART_ROWS, num_rows - first), dim), np.float32))


def topical_vectors(num_rows: int, dim: int, seed: int = 0) -> Iterable[np.ndarray]:
    """Blocks around a thousand topics in a few directions each, as sentences lie."""
    rng = np.random.default_rng(seed)
    topics = rng.standard_normal((TOPICS, dim), np.float32)
    directions = rng.standard_normal((32, dim), np.float32)
    for first in range(0, num_rows, PART_ROWS):
        size = min(PART_ROWS, num_rows - first)
        own = rng.standard_normal((size, len(directions)), np.float32) @ directions * 0.3
        noise = rng.standard_normal((size, dim), np.float32) * 0.3
        yield _unit(topics[rng.integers(0, TOPICS, size)] + own + noise)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
