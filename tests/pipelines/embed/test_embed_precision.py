"""The number format of an embed job: found out once, recorded, kept by updates, told to joins."""

import json

import numpy as np
import pytest
from support.embedding import (
    embed,
    published_bytes,
    rows_of,
    sentences,
    table_of,
    vectors_of,
    write_corpus,
)

from pipelines.artifacts.errors import PartialWork
from pipelines.artifacts.reader import Artifact
from pipelines.embed.identity import MixedRecipes
from pipelines.embed.job import run as run_embed
from pipelines.embed.spec import EmbedSpec
from pipelines.pairs.identity import PairsIdentity, PrecisionMismatch
from pipelines.pairs.spec import PairsSpec
from sbert_core.choices import Precision
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.instructions import is_announced

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not is_announced(Precision.INT8), reason="this CPU has no VNNI"),
]


@pytest.fixture(scope="module")
def options(ray_address, bert_folder):
    return {"model": bert_folder, "address": ray_address, "unit_rows": 32, "actors": 1}


def test_int8_vectors_are_those_of_the_encoder_and_an_update_equals_a_fresh_run(options, tmp_path):
    texts = sentences(60)
    corpus, out = tmp_path / "in", tmp_path / "out"
    write_corpus(corpus, {"a.parquet": rows_of(texts[:40])})
    first = embed(corpus, out, **options, precision="int8")
    want = Encoder.load(options["model"], precision="int8").encode(texts[:40])
    np.testing.assert_array_equal(vectors_of(table_of(out)), want)
    exact = Encoder.load(options["model"]).encode(texts[:40])
    assert 0 < first.precision_error < 0.05
    assert 1 - (want * exact).sum(1).min() <= first.precision_error + 1e-6
    assert json.loads((out / "_run.json").read_text())["precision_error"] == first.precision_error
    manifest = Artifact.vectors(str(out)).manifest
    assert (manifest.settings.precision, manifest.settings.batch_invariant) == ("int8", True)
    write_corpus(corpus, {"b.parquet": rows_of(texts[40:], 1000)})
    update = embed(corpus, out, **options, precision="int8")
    assert update.embedded == 20
    assert update.precision_error >= first.precision_error
    assert not embed(corpus, out, **options, precision="int8").is_new
    embed(corpus, tmp_path / "fresh", **options, precision="int8")
    assert data_of(out) == data_of(tmp_path / "fresh")


def test_error_of_an_update_covers_the_vectors_it_keeps(options, tmp_path):
    texts = sentences(41)
    narrow, exact = (
        Encoder.load(options["model"], precision=own).encode(texts) for own in ("int8", "float32")
    )
    *rough, finest = np.argsort((narrow * exact).sum(1))  # the largest error first
    corpus, out = tmp_path / "in", tmp_path / "out"
    write_corpus(corpus, {"a.parquet": rows_of([texts[row] for row in rough])})
    first = embed(corpus, out, **options, precision="int8")
    write_corpus(corpus, {"b.parquet": rows_of([texts[finest]], 1000)})
    assert embed(corpus, out, **options, precision="int8").precision_error == first.precision_error


def data_of(out) -> dict[str, str]:
    """Data files; the error of a format is measured on texts that are new."""
    return {name: sha for name, sha in published_bytes(out).items() if name.endswith(".parquet")}


def test_auto_is_recorded_and_another_format_is_refused(options, tmp_path):
    corpus, out = tmp_path / "in", tmp_path / "out"
    write_corpus(corpus, {"a.parquet": rows_of(sentences(8))})
    embed(corpus, out, **options, precision="auto")
    assert Artifact.vectors(str(out)).manifest.settings.precision == "float32"
    for other in ("float32", "int8"):
        with pytest.raises(MixedRecipes) as caught:
            embed(corpus, out, **options, precision=other)
        found = caught.value
        assert (found.key, found.theirs.value, found.mine.value) == ("precision", "auto", other)
    (out / "_manifest.json").write_text(  # as if a worker with a GPU had made them
        (out / "_manifest.json")
        .read_text()
        .replace('"precision": "float32"', '"precision": "bfloat16"')
    )
    write_corpus(corpus, {"b.parquet": rows_of(sentences(12)[8:], 100)})
    with pytest.raises(MixedRecipes) as caught:
        embed(corpus, out, **options, precision="auto")
    assert (caught.value.key, caught.value.theirs.value) == ("precision", "bfloat16")


def test_manifest_of_float32_has_no_precision(options, tmp_path):
    write_corpus(tmp_path / "in", {"a.parquet": rows_of(sentences(3))})
    embed(tmp_path / "in", tmp_path / "out", **options)
    found = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert "precision" not in json.dumps(found)


def test_format_that_workers_lack_is_refused_in_one_line(options, tmp_path):
    write_corpus(tmp_path / "in", {"a.parquet": rows_of(sentences(3))})
    spec = EmbedSpec(
        corpus=str(tmp_path / "in"),
        out=str(tmp_path / "out"),
        model=str(options["model"]),
        address=options["address"],
        precision="float16",
    )
    with pytest.raises(ValueError, match="float32, bfloat16, int8"):
        run_embed(spec)
    assert not (tmp_path / "out").exists()


def test_join_of_two_formats_refuses_what_they_cannot_tell_apart(options, tmp_path):
    write_corpus(tmp_path / "in", {"a.parquet": rows_of(sentences(40))})
    embed(tmp_path / "in", tmp_path / "exact", **options)
    error = embed(tmp_path / "in", tmp_path / "int8", **options, precision="int8").precision_error
    spec = {"vectors": str(tmp_path / "exact"), "against": str(tmp_path / "int8"), "out": "o"}
    with pytest.raises(PrecisionMismatch) as caught:
        PairsIdentity.of(PairsSpec(**spec, threshold=1 - error))
    assert caught.value.limit == pytest.approx(1 - 2 * error)
    with pytest.raises(PrecisionMismatch):  # it would find none of the equal texts
        PairsIdentity.of(PairsSpec(**spec, threshold=1 - error, top_k=3))
    PairsIdentity.of(PairsSpec(**spec, threshold=1 - 3 * error))
    PairsIdentity.of(PairsSpec(**spec, top_k=3))


def test_unfinished_work_in_a_format_that_workers_lack_is_refused_in_one_line(
    options, tmp_path, monkeypatch
):
    corpus, out = tmp_path / "in", tmp_path / "out"
    write_corpus(corpus, {"a.parquet": rows_of(sentences(8))})

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.embed.job._fill", stop)
        with pytest.raises(PartialWork):
            embed(corpus, out, **options, precision="auto")
    [plan] = out.glob("_work/*/plan.json")
    begun = plan.read_text()
    assert begun.count('"precision": "float32"') == 1
    plan.write_text(begun.replace('"precision": "float32"', '"precision": "float16"'))  # on a GPU
    with pytest.raises(ValueError, match="unfinished work .* float16 .* or remove") as caught:
        embed(corpus, out, **options, precision="auto")
    assert "\n" not in str(caught.value)
    plan.write_text(begun)
    assert embed(corpus, out, **options, precision="auto").rows == 8
