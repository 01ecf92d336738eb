"""Columns of a corpus may have any name: whole runs with names that jobs use themselves."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from support.clustering import clustered, paired
from support.clustering import table_of as clusters_of
from support.embedding import embed, sentences, table_of

from pipelines.apply import job as apply_job
from pipelines.apply.spec import ApplySpec
from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from pipelines.dedup import job as dedup_job
from pipelines.dedup.spec import DedupSpec
from pipelines.index import job as index_job
from pipelines.index.spec import IndexSpec
from pipelines.search.index import Index
from sbert_core.corpus.columns import RESERVED_COLUMNS
from sbert_core.index.shard_rows import IS_DEAD, NODE, OWN, PART
from sbert_core.vectors.block import BLOCK_COLUMNS
from sbert_core.vectors.text_owners import CLAIM, LOAN, TEXT_RECORD

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

# What jobs call columns, fields and files of their own, on disk or on the way.
IN_USE = dict.fromkeys(
    [
        *(NODE, OWN, IS_DEAD, PART, "label", "shard", "number", "path", "name", "live", "nodes"),
        *(*BLOCK_COLUMNS, *TEXT_RECORD.names, *CLAIM.names, *LOAN.names),
        *("unit", "first_row", "num_rows", "reason"),
        *("id_a", "id_b", "cos", "rerank", "side", "representative", "a", "b", "part_of"),
        *("cluster", "canonical", "keep", "witness", "cos_to_witness", "threshold", "topic"),
        *("query", "rank", "score", "mask", "place", "_", "#", "first-0", "rule-0", "position"),
        *(
            "vector.list.element",
            "vectors",
            "idx",
            "content",
            "_manifest.json",
            "__index_level_0__",
        ),
    ]
)
NAMES = [*RESERVED_COLUMNS, *(name for name in IN_USE if name not in RESERVED_COLUMNS)]


def published(name: str) -> str:
    return f"source_{name}" if name in RESERVED_COLUMNS else name


def values_of(place: int, first: int, number: int) -> list[int]:
    """Another order of rows in each column."""
    return [(17 * n * (place + 1) + place) % 101 for n in range(first, first + number)]


def write_part(folder: Path, file: str, texts: list[str], first: int) -> None:
    """Every name in use, and a harmless one beside it for the same values."""
    columns = {"key": [f"k{first + n:03d}" for n in range(len(texts))], "words": texts}
    for place, name in enumerate(NAMES):
        values = values_of(place, first, len(texts))
        columns |= {name: values, f"c{place}": values}
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / file)


def test_columns_named_like_those_of_jobs_give_what_harmless_names_give(
    bert_folder, ray_address, tmp_path
):
    """Embed, index, update, search, pairs, cluster, apply: `node` as `c17`, which no job knows."""
    texts = sentences(40)
    texts[30:34] = texts[:4]  # equal texts, in another file
    carry = [name if name == published(name) else f"{name}={published(name)}" for name in NAMES]
    carry += [f"c{place}" for place in range(len(NAMES))]
    options = {"text_column": "words", "id_column": "key", "carry": tuple(carry)}
    options |= {"model": bert_folder, "address": ray_address}

    def brought_in_line() -> index_job.IndexReport:
        embed(tmp_path / "c", tmp_path / "v", **options)
        out = str(tmp_path / "i")
        spec = IndexSpec(vectors=f"{tmp_path}/v", out=out, recall_sample=9, address=ray_address)
        return index_job.run(spec)

    write_part(tmp_path / "c", "a.parquet", texts[:20], 0)
    write_part(tmp_path / "c", "b.parquet", texts[20:], 20)
    brought_in_line()
    write_part(tmp_path / "c", "b.parquet", [*texts[20:38], "some new word", "other"], 20)
    update = brought_in_line()
    assert (update.num_removed, update.num_added) == (2, 2)
    index, table = Index.open(tmp_path / "i"), table_of(tmp_path / "v")
    vector = index.encoder.encode(["the hot word"])
    paired(tmp_path / "v", tmp_path / "p", ray_address, 0.9999)
    for place, name in enumerate(NAMES):
        own, other = published(name), f"c{place}"
        assert table[own].to_pylist() == table[other].to_pylist() == values_of(place, 0, 40)
        if own.isidentifier():
            where = "{0} >= 20 and not {0} in (30, 31)"
            found = [index.search(vector, 40, where=where.format(n)).ids for n in (own, other)]
            assert found[0] == found[1] and found[0][0]
        if place % 10 == 0 or name in ("row", "id", NODE, "#"):
            rules = [f"lowest:{own}", f"lowest:{other}"]
            kept = [decided(tmp_path / "p", tmp_path / f"k-{place}-{n}", rules[n]) for n in (0, 1)]
            assert kept[0] == kept[1] and sum(kept[0].values()) == 36
    apply_job.run(
        ApplySpec(clusters=f"{tmp_path}/k-0-0", corpus=f"{tmp_path}/c", out=f"{tmp_path}/clean",
                  address=ray_address)
    )  # fmt: skip
    rows_kept = {i for i, row in clusters_of(tmp_path / "k-0-0").items() if row["keep"]}
    for file in ("a.parquet", "b.parquet"):
        rows = pq.read_table(tmp_path / "c" / file).to_pylist()
        left = pq.read_table(f"{Artifact.open(tmp_path / 'clean').folder}/{file}").to_pylist()
        assert left == [row for row in rows if row["key"] in rows_kept]


def decided(pairs: Path, out: Path, keep: str) -> dict[str, bool]:
    clustered(pairs, out, keep=keep)
    return {name: row["keep"] for name, row in clusters_of(out).items()}


def duplicated(folder: Path) -> Path:
    """A unique row behind two copies, and a column `row` that counts back."""
    folder.mkdir()
    texts = ["the hot word", "the hot word", "you can write", "all of them"]
    pq.write_table(pa.table({"text": texts, "row": [3, 2, 1, 0]}), folder / "a.parquet")
    return folder


def test_carried_row_under_another_name_removes_the_copy(bert_folder, ray_address, tmp_path):
    corpus = duplicated(tmp_path / "c")
    words = ["embed", str(corpus), "--model", str(bert_folder), "--out", f"{tmp_path}/v"]
    refused = CliRunner().invoke(main, [*words, "--carry", "row", "--address", ray_address])
    assert refused.exit_code == 2 and not (tmp_path / "v").exists()
    embed(corpus, tmp_path / "v", bert_folder, address=ray_address, carry=("row=source_row",))
    inputs = Artifact.vectors(tmp_path / "v").manifest.inputs
    assert (inputs.carry, inputs.types) == (("row=source_row",), {"row": "int64"})
    assert table_of(tmp_path / "v").select(["row", "source_row"]).to_pydict() == {
        "row": [0, 1, 2, 3],
        "source_row": [3, 2, 1, 0],
    }
    paired(tmp_path / "v", tmp_path / "p", ray_address, 0.9999)
    clustered(tmp_path / "p", tmp_path / "k", keep="lowest:source_row")
    apply_job.run(
        ApplySpec(clusters=f"{tmp_path}/k", corpus=str(corpus), out=f"{tmp_path}/clean",
                  address=ray_address)
    )  # fmt: skip
    clean = pq.read_table(f"{Artifact.open(tmp_path / 'clean').folder}/a.parquet")
    assert clean["row"].to_pylist() == [2, 1, 0]


def test_dedup_rules_on_columns_that_vectors_have_use_those_of_the_file(
    bert_folder, ray_address, tmp_path
):
    """In each pair of copies one column alone prefers the second: as vectors have it, none does."""
    names = ["row", "num_chars", "file", "id"]  # ids differ everywhere: they decide last
    rows = [{"text": "you can write", "id": 9}]
    for number, name in enumerate(names):
        text, ids = f"the hot word {number}", (20 + 2 * number, 21 + 2 * number)
        first, second = ({"text": text, "id": own} for own in ids)
        first[name], second[name] = (40, 30) if name != "id" else (ids[1], ids[0])
        rows += [first, second]
    columns = ["text", *names, *(f"source_{name}" for name in names)]
    with (tmp_path / "in.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="7")
        writer.writeheader()
        writer.writerows(rows)
    rules = [f"lowest:{prefix}{name}" for prefix in ("", "source_") for name in names]
    report = dedup_job.run(
        DedupSpec(file=f"{tmp_path}/in.csv", out=tmp_path / "out", model=str(bert_folder),
                  threshold="0.9999", keep=",".join(["longest", *rules]), address=ray_address)
    )  # fmt: skip
    with Path(report.kept).open(newline="") as file:
        kept = [int(row["id"]) for row in csv.DictReader(file)]
    assert kept == [9, *(row["id"] for row in rows[2::2])]
    job = yaml.safe_load(Path(report.job).read_text("utf-8"))["stages"]
    assert set(job["embed"]["carry"]) == {
        *(f"{name}=source_source_{name}" for name in names),
        *(f"source_{name}" for name in names),
    }


def test_hive_folder_named_like_a_column_of_vectors_is_carried_under_another_name(
    bert_folder, ray_address, tmp_path
):
    for number in (3, 5):
        (tmp_path / f"c/row={number}").mkdir(parents=True)
        texts = [f"the word {number} {n}" for n in range(2)]
        pq.write_table(pa.table({"text": texts}), tmp_path / f"c/row={number}/a.parquet")
    embed(
        tmp_path / "c", tmp_path / "v", bert_folder, address=ray_address,
        carry=("row=shelf",), where="row != 5 or text in ('the word 5 1')",
    )  # fmt: skip
    table = table_of(tmp_path / "v").select(["id", "row", "shelf"])
    assert table.to_pylist() == [
        {"id": "row=3/a.parquet#0", "row": 0, "shelf": 3},
        {"id": "row=3/a.parquet#1", "row": 1, "shelf": 3},
        {"id": "row=5/a.parquet#1", "row": 1, "shelf": 5},
    ]


TYPES = {
    "zoned": pa.timestamp("us", "Europe/Berlin"),
    "decimal": pa.decimal128(20, 4),
    "list": pa.list_(pa.int32()),
    "struct": pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]),
    "map": pa.map_(pa.string(), pa.float64()),
    "dictionary": pa.dictionary(pa.int16(), pa.string()),
    "binary": pa.binary(),
    "fixed": pa.binary(4),
    "time": pa.time64("us"),
    "duration": pa.duration("ms"),
    "date": pa.date32(),
    "half": pa.float16(),
    "large": pa.large_string(),
    "nothing": pa.null(),
}


def types_of(out) -> dict[str, pa.DataType]:
    [part] = [file.path for file in Artifact.open(str(out)).manifest.files]
    schema = pq.read_schema(Path(str(out)) / part)
    return {name: schema.field(name).type for name in TYPES}


def test_corpus_without_rows_keeps_the_types_of_carried_columns(bert_folder, ray_address, tmp_path):
    schema = pa.schema({"id": pa.int32(), "text": pa.string(), **TYPES})
    (tmp_path / "c").mkdir()
    pq.write_table(schema.empty_table(), tmp_path / "c/a.parquet")
    pq.write_table(schema.empty_table(), tmp_path / "c/b.parquet")
    options = {"address": ray_address, "carry": tuple(TYPES)}
    embed(tmp_path / "c", tmp_path / "v", bert_folder, **options)
    row = {"id": [1], "text": ["the word"]}
    row |= {name: pa.nulls(1, kind) for name, kind in TYPES.items()}
    (tmp_path / "d").mkdir()
    pq.write_table(pa.table(row, schema=schema), tmp_path / "d/a.parquet")
    embed(tmp_path / "d", tmp_path / "w", bert_folder, **options)
    full, empty = types_of(tmp_path / "w"), types_of(tmp_path / "v")
    assert empty == full
    manifests = [json.loads((tmp_path / out / "_manifest.json").read_text()) for out in "vw"]
    assert manifests[0]["schema"] == manifests[1]["schema"]
    assert manifests[0]["made_from"]["types"] == manifests[1]["made_from"]["types"]
    # Of what is left no file is opened: the columns are those of the last run.
    (tmp_path / "c/b.parquet").unlink()
    embed(tmp_path / "c", tmp_path / "v", bert_folder, **options)
    assert types_of(tmp_path / "v") == full


@pytest.mark.parametrize(
    "words",
    [
        ["--where", "text >= 3"],
        ["--where", "text in ('a', 1)"],
        ["--where", "row"],
        ["--text", "a{b"],
        ["--text", "{}"],
        ["--carry", "id"],
        ["--carry", "row,row"],
        ["--carry", "row="],
    ],
)
def test_bad_words_end_with_two_and_one_line(words, bert_folder, ray_address, tmp_path):
    corpus = duplicated(tmp_path / "c")
    common = ["embed", str(corpus), "--model", str(bert_folder), "--out", f"{tmp_path}/v"]
    result = CliRunner().invoke(main, [*common, *words, "--address", ray_address])
    assert result.exit_code == 2, result.output
    assert result.stderr.count("error:") == 1 and "unexpected" not in result.output
    assert words[1].split(",")[0] in result.output
    assert not (tmp_path / "v").exists()
