"""The embed job against the encoder itself, and its promises under reruns and changes."""

import json

import numpy as np
import pyarrow as pa
import pytest
from support.embedding import (
    assert_nothing_but_the_artifact,
    embed,
    published_bytes,
    quarantine_of,
    rows_of,
    sentences,
    table_of,
    vectors_of,
    write_corpus,
)

from pipelines.artifacts.errors import PartialWork
from pipelines.artifacts.reader import Artifact
from pipelines.embed import job as embed_job
from pipelines.embed.identity import MixedRecipes
from sbert_core.corpus.errors import ChangedFile, MissingId, RepeatedId
from sbert_core.corpus.parquet import content_hash
from sbert_core.encoder.encoder import Encoder

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Three files with repeats within a unit, across units and files, and bad rows."""
    texts = sentences(240)
    first = [*texts[:100], None, "", texts[3], texts[3]]
    second = [*texts[100:200], texts[5], texts[150]]
    third = [*texts[200:], texts[0], "  \n", texts[199]]
    folder = tmp_path_factory.mktemp("corpus")
    files = {"a.parquet": rows_of(first), "b.parquet": rows_of(second, 1000)}
    return write_corpus(folder, {**files, "sub/c.parquet": rows_of(third, 2000)})


@pytest.fixture(scope="module")
def options(ray_address, bert_folder):
    return {"model": bert_folder, "address": ray_address, "unit_rows": 32}


@pytest.fixture(scope="module")
def published(corpus, options, tmp_path_factory):
    """An undisturbed run of two actors."""
    out = tmp_path_factory.mktemp("out") / "vectors"
    report = embed(corpus, out, **options, actors=2)
    return out, report


def all_rows(corpus) -> list[dict]:
    table = pa.concat_tables(
        [
            pa.parquet.read_table(corpus / name)
            for name in ("a.parquet", "b.parquet", "sub/c.parquet")
        ]
    )
    return table.to_pylist()


def test_every_row_has_the_encoders_vector_or_a_reason(published, corpus, bert_folder):
    out, report = published
    rows = [row for row in all_rows(corpus) if row["text"] and row["text"].strip()]
    table = table_of(out)
    assert table["id"].to_pylist() == [row["id"] for row in rows]
    want = Encoder.load(bert_folder).encode([row["text"] for row in rows])
    np.testing.assert_array_equal(vectors_of(table), want)
    assert table["content_hash"].to_pylist() == [content_hash(row["text"]) for row in rows]
    assert table["num_chars"].to_pylist() == [len(row["text"]) for row in rows]
    assert [(row["id"], row["file"], row["row"], row["reason"]) for row in quarantine_of(out)] == [
        ("r100", "a.parquet", 100, "null"),
        ("r101", "a.parquet", 101, "empty"),
        ("r2041", "sub/c.parquet", 41, "blank"),
    ]
    assert (report.rows, report.quarantined) == (len(rows), 3)


def test_rows_point_back_into_the_corpus(published, corpus):
    table = table_of(published[0]).select(["id", "file", "row"]).to_pylist()
    for row in table[::17]:
        source = pa.parquet.read_table(corpus / row["file"])
        assert source["id"][row["row"]].as_py() == row["id"]


def test_each_distinct_text_passes_the_model_once(published):
    out, report = published
    assert report.embedded == 240
    assert report.repeats == 6
    lengths = table_of(out)["num_tokens"].to_numpy()
    assert report.tokens + report.tokens_saved == lengths.sum()
    assert report.tokens_saved > 0


def test_nothing_is_left_but_the_artifact(published):
    assert_nothing_but_the_artifact(published[0])
    run = json.loads((published[0] / "_run.json").read_text())
    assert run["embedded"] == 240
    assert set(run["phases"]) >= {"plan", "embed", "fill", "manifest"}
    assert run["private_bytes"]["actor"] > 0


def test_rerun_is_free_and_needs_no_ray(published, corpus, options, monkeypatch):
    out, _ = published
    before = published_bytes(out)

    def no_ray(*args, **kwargs):
        raise AssertionError("Ray was started")

    monkeypatch.setattr("pipelines.embed.executor.job_session", no_ray)
    report = embed(corpus, out, **options)
    assert (report.embedded, report.seconds) == (0, 0.0)
    assert published_bytes(out) == before


def test_bytes_do_not_depend_on_workers_nor_on_the_distinct_pass(
    published, corpus, options, tmp_path
):
    embed(corpus, tmp_path / "one", **options)
    assert published_bytes(tmp_path / "one") == published_bytes(published[0])
    embed(corpus, tmp_path / "unit", **{**options, "distinct": "unit"})
    assert table_of(tmp_path / "unit").equals(table_of(published[0]))


def test_update_embeds_only_what_is_new_and_equals_a_run_from_scratch(corpus, options, tmp_path):
    texts = sentences(300, seed=5)
    folder = write_corpus(
        tmp_path / "corpus",
        {
            "b.parquet": rows_of([*texts[:100], None]),
            "c.parquet": rows_of(texts[100:180], 1000),
            "d.parquet": rows_of(texts[180:200], 2000),
        },
    )
    out = tmp_path / "out"
    embed(folder, out, **options)
    changed = [*texts[100:140], *texts[250:255], *texts[145:180]]
    (folder / "d.parquet").unlink()
    write_corpus(
        folder,
        {
            "a.parquet": rows_of([texts[200], texts[10], texts[181]], 3000),
            "c.parquet": rows_of(changed, 1000),
        },
    )
    kept = Artifact.open(out).manifest.files[0]
    report = embed(folder, out, **options)
    assert report.embedded == 6  # one in the new file, five changed; texts[181] is in the old part
    assert report.rows == 3 + 100 + 80
    inode = {(out / file.path).stat().st_ino for file in Artifact.open(out).manifest.files}
    assert (out / kept.path).stat().st_ino in inode  # b.parquet was linked, not written
    embed(folder, tmp_path / "scratch", **options)
    assert published_bytes(out) == published_bytes(tmp_path / "scratch")
    assert embed(folder, out, **options).seconds == 0.0


def test_another_model_or_dtype_is_refused_with_both_named(
    published, corpus, options, plain_encoder_folder
):
    out, _ = published
    before = published_bytes(out)
    changes = {"model": plain_encoder_folder("roberta"), "dtype": "int8", "max_length": 20}
    keys = []
    for name, value in changes.items():
        with pytest.raises(MixedRecipes) as caught:
            embed(corpus, out, **{**options, name: value})
        assert caught.value.what == "vectors"
        assert caught.value.theirs.value != caught.value.mine.value
        keys.append(caught.value.key)
    assert keys == ["space", "dtype", "max_length"]
    assert published_bytes(out) == before


def test_duplicate_and_null_ids_are_named(options, tmp_path):
    texts = sentences(40)
    twice = {"id": [*range(39), 5], "text": texts}
    folder = write_corpus(tmp_path / "a", {"x.parquet": twice})
    with pytest.raises(RepeatedId) as caught:
        embed(folder, tmp_path / "out", **options)
    assert caught.value.id == 5
    assert caught.value.places == (("x.parquet", 5), ("x.parquet", 39))
    none = {"id": pa.array([*range(39), None]), "text": texts}
    folder = write_corpus(tmp_path / "b", {"x.parquet": none})
    with pytest.raises(MissingId) as missing:
        embed(folder, tmp_path / "out", **options)
    assert (missing.value.path, missing.value.row) == ("x.parquet", 39)
    assert not (tmp_path / "out" / "_manifest.json").exists()


def test_conditions_carried_columns_templates_and_partitions(options, bert_folder, tmp_path):
    texts = sentences(60)
    columns = {"title": texts[:30], "body": texts[30:], "n": list(range(30))}
    folder = write_corpus(tmp_path / "in", {f"year={y}/x.parquet": columns for y in (2020, 2021)})
    out = tmp_path / "out"
    report = embed(
        folder,
        out,
        **options,
        text="{title}\n{body}",
        carry=("n", "year"),
        where="n >= 10 and year == 2021",
        limit=15,
    )
    table = table_of(out)
    assert report.rows == 15
    assert table["n"].to_pylist() == list(range(10, 25))
    assert table["year"].to_pylist() == [2021] * 15
    assert table["id"].to_pylist() == [f"year=2021/x.parquet#{n}" for n in range(10, 25)]
    assert table["row"].to_pylist() == list(range(10, 25))
    want = Encoder.load(bert_folder).encode(
        [f"{title}\n{body}" for title, body in zip(texts[10:25], texts[40:55], strict=True)]
    )
    np.testing.assert_array_equal(vectors_of(table), want)
    assert Artifact.open(out).manifest.inputs.positional is True


def test_ids_of_content_number_the_repeats(options, tmp_path):
    folder = write_corpus(
        tmp_path / "in", {"x.parquet": {"text": ["hot", "word", "hot", "hot", None]}}
    )
    embed(folder, tmp_path / "out", **options, id="content")
    hot, word = content_hash("hot").hex(), content_hash("word").hex()
    assert table_of(tmp_path / "out")["id"].to_pylist() == [hot, word, f"{hot}-2", f"{hot}-3"]


@pytest.mark.parametrize(("dtype", "worst"), [("float16", 1e-5), ("int8", 5e-3)])
def test_small_dtypes_state_their_error(dtype, worst, corpus, options, published, tmp_path):
    out = tmp_path / dtype
    embed(corpus, out, **options, dtype=dtype)
    manifest = Artifact.open(out).manifest
    stored = vectors_of(table_of(out)).astype(np.float64) * (manifest.settings.scale or 1.0)
    exact = vectors_of(table_of(published[0])).astype(np.float64)
    cos = (stored * exact).sum(1) / np.linalg.norm(stored, axis=1)
    stated = manifest.metrics.storage_error
    assert 1 - cos.min() <= max(1.5 * stated["self_max"], 1e-6)
    assert stated["self_max"] < worst
    if dtype == "int8":
        file = pa.parquet.ParquetFile(out / manifest.files[0].path)
        assert float(file.schema_arrow.metadata[b"sbert.scale"]) == manifest.settings.scale
        assert np.abs(vectors_of(table_of(out))).max() == 127


def test_empty_corpus_gives_an_empty_artifact(options, tmp_path):
    columns = {"id": pa.array([], pa.int64()), "text": pa.array([], pa.string())}
    folder = write_corpus(tmp_path / "in", {"x.parquet": columns})
    report = embed(folder, tmp_path / "out", **options)
    assert report.rows == 0
    table = pa.parquet.read_table(Artifact.open(tmp_path / "out").folder)
    assert table.num_rows == 0
    assert table.schema.field("id").type == pa.int64()
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 32)


def test_plan_writes_nothing_and_foretells_the_run(corpus, options, published, tmp_path):
    plan = embed(corpus, tmp_path / "out", **options, plan=True)
    assert not (tmp_path / "out").exists()
    report = published[1]
    assert plan.rows == report.rows + report.quarantined
    assert plan.to_embed == report.embedded
    assert abs(plan.tokens - report.tokens) < 0.25 * report.tokens
    assert plan.bytes_out > 0
    assert plan.seconds[0] < plan.seconds[1]


def test_csv_update_with_other_columns_stages_what_it_must_read(options, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    texts = sentences(60)
    lines = [f"{row},{text},NA" for row, text in enumerate(texts)]
    (folder / "a.csv").write_text("id,text,note\n" + "\n".join(lines[:40]) + "\n")
    out = tmp_path / "out"
    assert embed(folder, out, **options).embedded == 40
    (folder / "b.csv").write_text("id,text,note\n" + "\n".join(lines[40:]) + "\n")
    report = embed(folder, out, **options, carry=("note",))
    assert (report.embedded, report.reused, report.rows) == (20, 40, 60)
    assert set(table_of(out)["note"].to_pylist()) == {"NA"}
    want = [str(row) for row in range(60)]
    assert table_of(out)["id"].to_pylist() == want


def test_work_left_by_another_corpus_is_salvaged_with_its_scale(options, tmp_path, monkeypatch):
    """A run stops before publishing, the corpus grows, the next run reuses its vectors."""
    texts = sentences(120)
    corpus = write_corpus(tmp_path / "in", {"b.parquet": rows_of(texts[:60])})
    out = tmp_path / "out"
    int8 = {**options, "dtype": "int8"}

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.embed.job._fill", stop)
        with pytest.raises(PartialWork, match="stopped; 2 of 2 units are saved"):
            embed(corpus, out, **int8)
    left = json.loads(next(out.glob("_work/*/plan.json")).read_text())["scale"]
    with pytest.raises(MixedRecipes) as caught:
        embed(corpus, out, **options)
    assert (caught.value.what, caught.value.key) == ("unfinished work", "dtype")
    write_corpus(corpus, {"a.parquet": rows_of(texts[60:], 1000)})
    report = embed(corpus, out, **int8)
    assert (report.embedded, report.reused) == (60, 60)
    assert Artifact.open(out).manifest.settings.scale == left
    assert_nothing_but_the_artifact(out)


def test_kill_right_after_publishing_leaves_nothing_wrong(options, tmp_path, monkeypatch):
    texts = sentences(80)
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of([*texts[:40], ""])})
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.artifacts.writer.Writer.tidy", lambda self, kept: None)
        embed(corpus, out, **options)
    assert (out / "_work").exists()
    write_corpus(corpus, {"b.parquet": rows_of(texts[40:], 1000)})
    assert embed(corpus, out, **options).embedded == 40
    # The id of a quarantined row of a linked file counts as taken.
    write_corpus(corpus, {"c.parquet": {"id": ["r40"], "text": ["a new text"]}})
    with pytest.raises(RepeatedId) as caught:
        embed(corpus, out, **options)
    assert caught.value.id == "r40"
    assert set(caught.value.places) == {("a.parquet", None), ("c.parquet", 0)}


def test_corpus_that_changes_meanwhile_is_not_published(options, tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of(sentences(20))})
    out = tmp_path / "out"
    plain = embed_job._fill

    def change(*args):
        plain(*args)
        write_corpus(corpus, {"a.parquet": rows_of(sentences(20, seed=9))})

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.embed.job._fill", change)
        with pytest.raises(ChangedFile) as caught:
            embed(corpus, out, **options)
    assert caught.value.path == "a.parquet"
    assert not (out / "_manifest.json").exists()
    assert embed(corpus, out, **options).embedded == 20


def test_relative_globs_are_read_by_workers_elsewhere(options, tmp_path, monkeypatch):
    write_corpus(tmp_path / "in", {"a.parquet": rows_of(["the word"]), "b.md": rows_of(["no"])})
    monkeypatch.chdir(tmp_path)
    assert embed("in/*.parquet", "out", **options).rows == 1


def test_bands_change_no_byte_of_a_run_and_of_an_update(options, tmp_path, monkeypatch):
    """A job of a billion rows has a thousand bands; here one of hundreds has some ten."""
    texts = sentences(300)
    files = {
        "a.parquet": rows_of([*texts[:150], texts[7], None]),
        "b.parquet": rows_of([*texts[100:220], texts[7]], 1000),
    }
    corpus = write_corpus(tmp_path / "in", files)

    def embed_twice() -> list:
        found = []
        for bands, (least_rows, per_range) in {"one": (65_536, 1024), "many": (40, 4)}.items():
            monkeypatch.setattr("pipelines.embed.find_owners.LEAST_BAND_ROWS", least_rows)
            monkeypatch.setattr("sbert_core.vectors.shuffle.RECORDS_PER_RANGE", per_range)
            report = embed(corpus, tmp_path / bands, **options)
            counts = (report.embedded, report.reused, report.repeats)
            found.append((published_bytes(tmp_path / bands), counts))
        return found

    one, many = embed_twice()
    assert one == many
    assert one[1] == (220, 0, 52)
    # Rows move to another file and another place there, so that vectors come from far parts.
    write_corpus(corpus, {"b.parquet": rows_of([*texts[200:], *texts[:90]], 2000)})
    one, many = embed_twice()
    assert one == many
    assert one[1] == (80, 110, 0)
