"""Rows of a shard beside carried columns of any name, by plain calls of the tasks."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.synthetic import random_vectors

from sbert_core.data_file import ListedFile
from sbert_core.index.builder import ShardBuilder
from sbert_core.index.filter import row_mask
from sbert_core.index.kinds import IndexKind
from sbert_core.index.shard_rows import IS_DEAD, NODE, OWN, PART
from sbert_core.vectors.row_ranges import RowRange
from workers.index.job import IndexJob
from workers.index.shard import PART_DIGITS, open_shard
from workers.index.update import MovedRows, hash_shard_rows, update_shard_rows

DIM, ROWS = 8, 60
NAMES = (NODE, OWN, IS_DEAD, PART)


def write_vectors(folder: Path, name: str, carried: dict) -> RowRange:
    [vectors] = random_vectors(ROWS, DIM)
    vectors[50:] = vectors[0]
    columns = {
        "id": [f"r{n:03d}" for n in range(ROWS)],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIM),
        "content_hash": pa.array([b"%016d" % n for n in range(ROWS)], pa.binary(16)),
        **carried,
    }
    pq.write_table(pa.table(columns), folder / name)
    sha256 = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return RowRange(name, sha256, ROWS)


@pytest.fixture
def job(tmp_path):
    kind = IndexKind.parse("hnsw", 16, 60)
    return IndexJob(run="r", vectors=str(tmp_path), out=str(tmp_path / "out"), folder="data/g",
                    kind=kind, dim=DIM, scale=None, seed=0, trained=None)  # fmt: skip


def built(job: IndexJob, piece: RowRange, folder: Path) -> list[ListedFile]:
    """Files of a shard of all rows of a part."""
    table = job.read_table(piece, sha256=piece.sha256)
    builder = ShardBuilder(job.kind.create(DIM, ROWS, 0, None), DIM)
    part = piece.sha256[:PART_DIGITS]
    builder.add(table.drop_columns("vector"), job.unit_vectors(table, piece), part)
    paths = [folder / name for name in ("index", "rows", "own")]
    builder.write(*paths)
    suffixes = (builder.index.suffix, ".rows.arrow", ".own.npy")
    return [job.put_file("shard", path, end) for path, end in zip(paths, suffixes, strict=True)]


def carried_of(job: IndexJob, files: list, folder: Path, names) -> dict[str, list]:
    """Values of columns by id."""
    table = open_shard(job.storage, job.kind, DIM, files, folder).rows
    assert table.column_names == ["id", "content_hash", *names]
    return {row["id"]: [row[n] for n in names] for row in table.to_pylist()}


def test_shard_with_columns_named_like_its_own_is_built_and_updated(job, tmp_path):
    values = {name: [f"{name}-{n}" for n in range(ROWS)] for name in NAMES}
    piece = write_vectors(tmp_path, "a.parquet", values)
    files = built(job, piece, tmp_path)
    want = {f"r{n:03d}": [values[name][n] for name in NAMES] for n in range(ROWS)}
    assert carried_of(job, files, tmp_path, NAMES) == want
    shard = open_shard(job.storage, job.kind, DIM, files, tmp_path)
    for name in NAMES:
        found = row_mask(shard.rows, f"{name} == '{name}-7'")
        assert shard.rows["id"].filter(pa.array(found)).to_pylist() == ["r007"]
    with pytest.raises(ValueError, match="'shard'"):
        row_mask(shard.rows, "shard == 1")
    found = hash_shard_rows(job, files, frozenset([piece.sha256]))
    assert len(found.positions) == len(found.keys) == ROWS


@pytest.mark.parametrize("names", [NAMES, ("lang", NODE), ()])
def test_shard_updated_with_other_carried_columns_has_those(names, job, tmp_path):
    before = write_vectors(tmp_path, "a.parquet", {n: [1] * ROWS for n in (NODE, "old")})
    files = built(job, before, tmp_path)
    after = write_vectors(tmp_path, "b.parquet", {n: [f"{n}!"] * ROWS for n in names})
    gone = frozenset([before.sha256])
    ids = open_shard(job.storage, job.kind, DIM, files, tmp_path).rows["id"].to_pylist()
    kept = np.arange(0, ROWS, 2)
    places = np.array([ids.index(f"r{row:03d}") for row in kept])
    rows = update_shard_rows(job, 0, files, gone, [MovedRows(places, after, kept)])
    assert rows.live == len(kept)
    files = [files[0], rows.file, files[2]]
    found = carried_of(job, files, tmp_path, names)
    assert {i: v for i, v in found.items() if int(i[1:]) % 2 == 0} == {
        f"r{row:03d}": [f"{name}!" for name in names] for row in kept
    }
    again = hash_shard_rows(job, files, frozenset([after.sha256]))
    assert sorted(again.positions) == sorted(places)
