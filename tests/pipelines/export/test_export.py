"""Exports read back by the store's own reader, or parsed by its documented format."""

import json
import uuid

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.embedding import embed, sentences, table_of, vectors_of, write_corpus

from pipelines.cli.main import main
from pipelines.export.qdrant import NAMESPACE

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
ODD = "tab\there, line\nbreak, back\\slash"


@pytest.fixture(scope="module")
def vectors(ray_address, bert_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    texts = sentences(700)
    ids = [*(f"r{n}" for n in range(699)), "\u00e9\U0001f600"]
    columns = {"id": ids, "text": texts, "note": [ODD, None, *["plain"] * 698], "n": range(700)}
    corpus = write_corpus(folder / "in", {"x.parquet": columns})
    carry = ("note", "n")
    embed(corpus, folder / "out", bert_folder, address=ray_address, carry=carry, dtype="int8")
    return folder / "out"


def export(vectors, to, out):
    result = CliRunner().invoke(main, ["export", str(vectors), "--to", to, "--out", str(out)])
    assert result.exit_code == 0, result.stderr
    assert result.output == f"700 vectors -> {out}\n"


def expected(vectors) -> tuple[pa.Table, np.ndarray]:
    manifest = json.loads((vectors / "_manifest.json").read_text())
    table = table_of(vectors)
    return table, vectors_of(table).astype(np.float32) * np.float32(manifest["spec"]["scale"])


def test_lance_dataset_opens_in_lance(vectors, tmp_path):
    lance = pytest.importorskip("lance")
    export(vectors, "lance", tmp_path / "x.lance")
    table, want = expected(vectors)
    found = lance.dataset(str(tmp_path / "x.lance")).to_table()
    assert found["id"].to_pylist() == table["id"].to_pylist()
    assert found["note"].to_pylist() == table["note"].to_pylist()
    np.testing.assert_array_equal(vectors_of(found), want)


def test_copy_file_holds_every_value_once(vectors, tmp_path):
    export(vectors, "pgvector", tmp_path / "pg")
    table, want = expected(vectors)
    sql = (tmp_path / "pg" / "load.sql").read_text()
    assert '"vector" vector(32)' in sql
    assert '"id" text PRIMARY KEY' in sql
    lines = (tmp_path / "pg" / "rows.copy").read_text().split("\n")[:-1]
    assert len(lines) == 700
    names = [name for name in table.column_names if name not in ("vector", "content_hash")]
    for line, row, vector in zip(lines, table.to_pylist(), want, strict=True):
        fields = line.split("\t")
        found = dict(zip([*names, "vector"], fields, strict=True))
        assert unescaped(found["id"]) == row["id"]
        assert unescaped(found["note"]) == row["note"]
        assert int(found["n"]) == row["n"]
        np.testing.assert_array_equal(np.float32(json.loads(found["vector"])), vector)


def unescaped(field: str) -> str | None:
    """PostgreSQL's COPY text format, read as its manual says."""
    if field == r"\N":
        return None
    meanings = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
    text, escape = "", False
    for letter in field:
        if escape:
            text, escape = text + meanings[letter], False
        elif letter == "\\":
            escape = True
        else:
            text += letter
    return text


def test_qdrant_bodies_hold_every_point_once(vectors, tmp_path):
    export(vectors, "qdrant", tmp_path / "q")
    table, want = expected(vectors)
    collection = json.loads((tmp_path / "q" / "collection.json").read_text())
    assert collection == {"vectors": {"size": 32, "distance": "Cosine"}}
    batches = [
        json.loads(p.read_text())["batch"] for p in sorted((tmp_path / "q").glob("points-*"))
    ]
    assert len(batches) == 2
    ids = [point for batch in batches for point in batch["ids"]]
    assert ids == [str(uuid.uuid5(NAMESPACE, name)) for name in table["id"].to_pylist()]
    payloads = [payload for batch in batches for payload in batch["payloads"]]
    assert [payload["note"] for payload in payloads] == table["note"].to_pylist()
    found = np.float32([vector for batch in batches for vector in batch["vectors"]])
    np.testing.assert_array_equal(found, want)


def test_folder_that_is_taken_is_refused(vectors, tmp_path):
    (tmp_path / "file").touch()
    words = ["export", str(vectors), "--to", "qdrant", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, "exists already" in result.stderr) == (2, True)
