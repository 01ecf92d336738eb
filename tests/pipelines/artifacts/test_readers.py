"""Plain readers open the published folder, also while an update is running."""

import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.embedding import embed, rows_of, sentences, write_corpus

from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main

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
    assert READERS[reader](folder) == [f"r{row}" for row in range(40)]


@pytest.mark.ray
def test_artifact_streams_chosen_columns(published):
    batches = list(Artifact.open(published).read(["id", "num_tokens"]))
    assert [batch.schema.names for batch in batches][0] == ["id", "num_tokens"]
    assert sum(batch.num_rows for batch in batches) == 40


def test_path_of_nothing_is_one_line(tmp_path):
    result = CliRunner().invoke(main, ["path", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds no published artifact" in result.stderr
