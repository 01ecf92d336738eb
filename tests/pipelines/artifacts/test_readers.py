"""Plain readers open the published folder or the list of its files, also while an update runs."""

import shutil
from pathlib import Path

import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.embedding import (
    embed,
    published_bytes,
    quarantine_of,
    rows_of,
    sentences,
    write_corpus,
)

from pipelines.artifacts.errors import ScatteredArtifact
from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from pipelines.path.materialize import with_paths

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")

READERS = {
    "pyarrow": lambda folder: pq.read_table(folder)["id"].to_pylist(),
    "pyarrow.dataset": lambda folder: ds.dataset(folder).to_table()["id"].to_pylist(),
    "pandas": lambda folder: pd.read_parquet(folder)["id"].tolist(),
    "polars": lambda folder: polars.read_parquet(f"{folder}/*.parquet")["id"].to_list(),
    "duckdb": lambda folder: [
        row[0]
        for row in duckdb.sql(f"select id from '{folder}/*.parquet' order by file, row").fetchall()
    ],
}

LIST_READERS = {
    "pyarrow": lambda files: pq.read_table(files)["id"].to_pylist(),
    "pyarrow.dataset": lambda files: ds.dataset(files).to_table()["id"].to_pylist(),
    "pandas": lambda files: pd.concat(map(pd.read_parquet, files))["id"].tolist(),
    "polars": lambda files: polars.read_parquet(files)["id"].to_list(),
    "duckdb": lambda files: [
        row[0]
        for row in duckdb.execute(
            "select id from read_parquet(?) order by file, row", [files]
        ).fetchall()
    ],
}
IDS = [f"r{row}" for row in range(40)]


@pytest.fixture(scope="module")
def published(bert_folder, ray_address, tmp_path_factory):
    folder = tmp_path_factory.mktemp("readers")
    corpus = write_corpus(folder / "in", {"x.parquet": rows_of([*sentences(40), None, ""])})
    out = folder / "out"
    embed(corpus, out, bert_folder, address=ray_address, unit_rows=16)
    # What an update leaves half-way: another generation, work files, a quarantine.
    unfinished = out / "data" / "0000000000000000"
    unfinished.mkdir()
    part = next((out / "data").glob("*/000000*.parquet"))
    (unfinished / part.name).write_bytes(part.read_bytes())
    (out / "_work" / "tmp").mkdir(parents=True)
    (out / "_work" / "tmp" / "torn.parquet").write_bytes(b"PAR1")
    return out


@pytest.mark.ray
@pytest.mark.timeout(300)
@pytest.mark.parametrize("reader", READERS)
def test_published_folder_opens_with(reader, published):
    result = CliRunner().invoke(main, ["path", str(published)])
    assert result.exit_code == 0
    folder = result.output.strip()
    assert READERS[reader](folder) == IDS


@pytest.fixture
def scattered(published, tmp_path):
    """As after updates in a store: the first file and the last lie with older generations."""
    out = shutil.copytree(published, tmp_path / "scattered")
    manifest = Artifact.open(out).manifest
    first, *_, last = manifest.files
    [bad] = manifest.quarantine
    paths = {
        first.path: f"data/{'1' * 16}/000007-{first.sha256[:16]}.parquet",
        last.path: f"data/{'2' * 16}/000000-{last.sha256[:16]}.parquet",
        bad.path: f"_quarantine/{'1' * 16}/000007-{bad.sha256[:16]}.parquet",
    }
    for old, new in paths.items():
        (out / new).parent.mkdir(exist_ok=True)
        (out / old).rename(out / new)
    (out / "_manifest.json").write_bytes(with_paths(manifest, paths).to_json())
    return out


def ran(*words) -> list[str]:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


@pytest.mark.ray
@pytest.mark.parametrize("reader", LIST_READERS)
def test_list_of_files_opens_with(reader, published, scattered):
    for place in (published, scattered):
        files = ran("path", "--files", place)
        assert len(files) == 3
        assert LIST_READERS[reader](files) == IDS
    assert len({Path(file).parent for file in files}) == 3


@pytest.mark.ray
def test_folder_of_scattered_files_is_refused_with_one_line(scattered):
    result = CliRunner().invoke(main, ["path", str(scattered)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--files" in result.stderr and len(result.stderr.splitlines()) == 1
    with pytest.raises(ScatteredArtifact):
        _ = Artifact.open(scattered).folder


@pytest.mark.ray
def test_materialize_makes_one_folder_of_the_same_rows(scattered, published, ray_address):
    before = {path.relative_to(scattered) for path in scattered.rglob("*.parquet")}
    [folder] = ran("path", "--materialize", scattered, "--address", ray_address)
    for reader, read in READERS.items():
        assert read(folder) == IDS, reader
    # Numbers of units name the files, so the manifest is that of a run from scratch, byte by byte.
    assert (scattered / "_manifest.json").read_bytes() == (
        published / "_manifest.json"
    ).read_bytes()
    assert published_bytes(scattered) == published_bytes(published)
    [row] = [row for row in quarantine_of(scattered) if row["reason"] == "null"]
    assert row["id"] == "r40"
    # Those who opened the artifact before still find all of its files.
    after = {path.relative_to(scattered) for path in scattered.rglob("*.parquet")}
    listed = {name for name in before if name.parts[1] != "0" * 16 and name.parts[0] != "_work"}
    assert listed <= after
    assert ran("path", scattered) == [folder]
    words = ("path", "--materialize", "--files", "--address", ray_address)
    names = [Path(file).relative_to(published) for file in ran(*words, published)]
    assert [Path(file).relative_to(scattered) for file in ran(*words, scattered)] == names


@pytest.mark.ray
def test_artifact_streams_chosen_columns(published):
    batches = list(Artifact.open(published).read(["id", "num_tokens"]))
    assert [batch.schema.names for batch in batches][0] == ["id", "num_tokens"]
    assert sum(batch.num_rows for batch in batches) == 40


def test_path_of_nothing_is_one_line(tmp_path):
    result = CliRunner().invoke(main, ["path", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds no published artifact" in result.stderr
