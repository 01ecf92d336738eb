"""Exports of names and values that stores mind, from an artifact made by hand."""

import json
import re

import pyarrow as pa
import pytest
from support.manifests import manifest_of

from pipelines.artifacts.writer import Writer
from pipelines.export.job import run
from pipelines.export.spec import ExportSpec
from sbert_core.vectors.part import put_table

NAN, INF = float("nan"), float("inf")


def vectors(place, **columns):
    """A vectors artifact with these columns beside `id` and `vector`."""
    num_rows = len(next(iter(columns.values())))
    flat = pa.array([0.5] * 4 * num_rows, pa.float32())
    ids = pa.array([f"r{n}" for n in range(num_rows)], pa.string())
    vector = pa.FixedSizeListArray.from_arrays(flat, 4)
    table = pa.table({"id": ids, "vector": vector, **columns})
    with Writer.claim(place) as out:
        made = put_table(out.storage, "data/0123456789abcdef/0", table)
        manifest = manifest_of(
            "vectors",
            generation="0123456789abcdef",
            schema={field.name: str(field.type) for field in table.schema},
            rows=num_rows,
            quarantined=0,
            files=(made,),
            spec={"dim": 4, "space": "s", "recipe": "r", "model": "m", "scale": None},
            made_from={"corpus": "c", "text": "{text}", "id_column": "id", "files": []},
            facts={},
            versions={},
        )
        out.publish(manifest, rows_in=num_rows, rows_out=manifest.rows, run={})
    return str(place)


def identifiers(sql: str) -> list[str]:
    """Quoted names of a script, read by the rules of PostgreSQL."""
    return [name.replace('""', '"') for name in re.findall(r'"((?:[^"]|"")*)"', sql)]


def test_pgvector_script_with_quotes_in_a_name_names_the_column(tmp_path):
    name = 'a" integer); DROP TABLE "x'
    source = vectors(tmp_path / "v", **{name: pa.array([1, 2])})
    run(ExportSpec(vectors=source, to="pgvector", out=str(tmp_path / "out")))
    create, copy = (tmp_path / "out" / "load.sql").read_text().split("\\copy ")
    assert identifiers(create) == ["vectors", "id", name, "vector"]
    assert identifiers(copy) == ["vectors", "id", name, "vector"]


def test_pgvector_name_with_a_line_end_is_refused(tmp_path):
    source = vectors(tmp_path / "v", **{"a\nb": pa.array([1])})
    with pytest.raises(ValueError, match=r"'a\\nb'"):
        run(ExportSpec(vectors=source, to="pgvector", out=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_qdrant_payload_with_numbers_that_are_none_is_json(tmp_path):
    source = vectors(
        tmp_path / "v",
        n=pa.array([NAN, INF, -INF, None, 1.5]),
        deep=pa.array([[{"x": [NAN, 2.0]}]] * 5),
    )
    run(ExportSpec(vectors=source, to="qdrant", out=str(tmp_path / "out")))
    [file] = (tmp_path / "out").glob("points-*")

    def refused(word):
        raise AssertionError(f"{word} is no JSON")

    batch = json.loads(file.read_text(), parse_constant=refused)["batch"]
    assert [payload["n"] for payload in batch["payloads"]] == [None, None, None, None, 1.5]
    assert batch["payloads"][0]["deep"] == [{"x": [None, 2.0]}]


@pytest.mark.parametrize("to", ["lance", "pgvector", "qdrant"])
def test_export_without_rows_has_the_columns(to, tmp_path):
    source = vectors(tmp_path / "v", n=pa.array([], pa.int64()))
    out = tmp_path / "out"
    if to == "lance":
        lance = pytest.importorskip("lance")
    assert run(ExportSpec(vectors=source, to=to, out=str(out))).rows == 0
    if to == "lance":
        found = lance.dataset(str(out)).to_table()
        assert (found.num_rows, found.column_names) == (0, ["id", "vector", "n"])
        assert found.schema.field("vector").type == pa.list_(pa.float32(), 4)
    if to == "pgvector":
        assert (out / "rows.copy").read_text() == ""
