"""`sbert evaluate`: every kind of file, several models, and scores that follow from vectors."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats
from support.texts import sentences

from pipelines.evaluate.benchmarks import read_transfer
from pipelines.evaluate.job import run
from pipelines.evaluate.spec import EvaluateSpec
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.encoder import Encoder

TEXTS = sentences(120, seed=4)
RNG = np.random.default_rng(0)


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return str(path)


def value(report, model, measure, data=None):
    [found] = [
        score.value
        for score in report.scores[model]
        if score.measure == measure and data in (None, score.data)
    ]
    return found


@pytest.fixture(scope="module")
def encoder(bert_folder):
    return Encoder.load(bert_folder)


def test_sts_is_the_correlation_of_the_folders_own_vectors(tmp_path, bert_folder, encoder):
    score = RNG.random(40) * 5
    names = {"sentence1": TEXTS[:40], "sentence2": TEXTS[40:80]}
    first = write(tmp_path / "a" / "test.parquet", **names, score=score)
    subset = ["x"] * 10 + ["y"] * 30
    second = write(tmp_path / "b" / "test.parquet", **names, relatedness=score[::-1], subset=subset)
    out = tmp_path / "scores"
    report = run(EvaluateSpec(models=(str(bert_folder),), sts=(first, second), out=out))
    u, v = (encoder.encode(part, normalize=False) for part in (TEXTS[:40], TEXTS[40:80]))
    dots = (u * v).sum(1)
    expected = 100 * stats.spearmanr(dots, score).statistic
    model = bert_folder.name
    assert value(report, model, "spearman_dot", "a/test") == pytest.approx(expected)
    cos = dots / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    expected = 100 * stats.spearmanr(cos, score[::-1]).statistic
    assert value(report, model, "spearman_cosine", "b/test") == pytest.approx(expected)
    assert "| sts | a/test | spearman_cosine |" in report.table
    saved = json.loads((out / "scores.json").read_text())
    assert len(saved[model]) == 16
    assert "pearson_manhattan" in (out / "scores.md").read_text()
    mean = run(EvaluateSpec(models=(str(bert_folder),), sts=(second,), sts_aggregate="mean"))
    parts = [stats.spearmanr(cos[p], score[::-1][p]).statistic for p in (slice(10), slice(10, 40))]
    assert value(mean, model, "spearman_cosine") == pytest.approx(100 * np.mean(parts))


@pytest.mark.slow
def test_all_other_tasks_and_baselines_side_by_side(tmp_path, bert_folder):
    (tmp_path / "glove.txt").write_text("the 1 0 2\na 0 1 1\nof 1 1 0\n")
    label = np.arange(60) % 2
    write(tmp_path / "transfer" / "mr.parquet", text=TEXTS[:60], label=label)
    write(tmp_path / "transfer" / "trec_train.parquet", text=TEXTS[:60], label=label)
    write(tmp_path / "transfer" / "trec_test.parquet", text=TEXTS[60:], label=label)
    write(tmp_path / "r" / "x_docs.parquet", doc_id=["1", "2"], title=["a", None], text=TEXTS[:2])
    write(tmp_path / "r" / "x_queries.parquet", query_id=[7], text=[TEXTS[2]])
    write(tmp_path / "r" / "x_qrels.parquet", query_id=[7, 7], doc_id=[1, 99])
    spec = EvaluateSpec(
        models=(str(bert_folder),),
        triplets=(
            write(
                tmp_path / "t.parquet",
                anchor=TEXTS[:10],
                positive=TEXTS[:10],
                negative=TEXTS[10:20],
            ),
        ),
        pairs=(
            write(
                tmp_path / "p.parquet",
                sentence1=TEXTS[:10],
                sentence2=[*TEXTS[:5], *TEXTS[50:55]],
                label=[1] * 5 + [0] * 5,
            ),
        ),
        clusters=(
            write(
                tmp_path / "c.parquet",
                id=list(range(20)),
                cluster=[i // 2 for i in range(20)],
                text=[TEXTS[i // 2] for i in range(20)],
            ),
        ),
        facets=(
            write(
                tmp_path / "f.parquet",
                sentence1=TEXTS[:40],
                sentence2=TEXTS[40:80],
                score=RNG.random(40),
                topic=["a", "b"] * 20,
            ),
        ),
        transfer=str(tmp_path / "transfer"),
        retrieval=str(tmp_path / "r"),
        baselines=(f"glove={tmp_path / 'glove.txt'}", "tfidf", f"cls={bert_folder}"),
    )
    report = run(spec)
    model = bert_folder.name
    assert list(report.scores) == [model, "glove=glove.txt", "tfidf", f"cls={model}"]
    for name in report.scores:
        if not name.startswith("glove"):  # knows three words
            assert value(report, name, "accuracy_cosine", "t") > 90
        assert np.isfinite(value(report, name, "accuracy", "trec"))
        # One of two answers is not among the documents: half of them can be found.
        assert value(report, name, "recall@10", "x") == 50
    assert value(report, model, "average_precision", "p") == pytest.approx(100)
    assert value(report, "tfidf", "pair_f1", "c") == pytest.approx(100)
    assert value(report, "tfidf", "rand", "c") == pytest.approx(100)


def test_cross_encoders_are_scored_as_such(tmp_path, bert_folder):
    cross = CrossEncoder.load(bert_folder, num_outputs=1)
    cross.save(tmp_path / "cross")
    score = RNG.random(30)
    file = write(tmp_path / "s.parquet", sentence1=TEXTS[:30], sentence2=TEXTS[30:60], score=score)
    report = run(EvaluateSpec(models=(str(tmp_path / "cross"),), sts=(file,)))
    pairs = list(zip(TEXTS[:30], TEXTS[30:60], strict=True))
    expected = 100 * stats.spearmanr(cross.predict(pairs), score).statistic
    assert value(report, "cross", "spearman_cosine") == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sentence1": ["a"], "score": [1.0]}, "no pair of text columns"),
        ({"sentence1": ["a"], "sentence2": [" "], "score": [1.0]}, "row 0 .* is blank"),
        ({"sentence1": ["a"], "sentence2": ["b"], "score": [np.nan]}, "row 0 .* is nan"),
        ({"sentence1": ["a"], "sentence2": ["b"]}, "no column score"),
    ],
)
def test_bad_files_are_named(tmp_path, bert_folder, columns, message):
    file = write(tmp_path / "x.parquet", **columns)
    with pytest.raises(ValueError, match=message):
        run(EvaluateSpec(models=(str(bert_folder),), sts=(file,)))


def test_a_model_without_a_head_is_no_classifier(tmp_path, bert_folder):
    file = write(tmp_path / "x.parquet", premise=["a"], hypothesis=["b"], label=["x"])
    with pytest.raises(ValueError, match="head .*--objective softmax"):
        run(EvaluateSpec(models=(str(bert_folder),), nli=(file,)))


def test_rows_without_text_in_a_transfer_set_are_left_out_and_counted(tmp_path, caplog):
    texts = [*TEXTS[:20], "", None, " "]
    write(tmp_path / "t" / "cr.parquet", text=texts, label=[n % 2 for n in range(23)])
    with caplog.at_level("WARNING"):
        [benchmark] = read_transfer(str(tmp_path / "t"))
    assert benchmark.a == TEXTS[:20]
    assert benchmark.label.tolist() == [n % 2 for n in range(20)]
    assert "cr.parquet: 3 rows" in caplog.text


@pytest.mark.slow
def test_every_benchmark_and_baseline_has_a_place_of_its_own_in_the_table(tmp_path, bert_folder):
    names = {"sentence1": TEXTS[:20], "sentence2": TEXTS[20:40]}
    files = [
        write(tmp_path / folder / name, **names, score=RNG.random(20))
        for folder, name in [
            ("x", "sts.en.parquet"),
            ("x", "sts.de.parquet"),
            ("x", "sts.parquet"),
            ("y", "sts.parquet"),
        ]
    ]
    (tmp_path / "x" / "sts.csv").write_text(
        "sentence1,sentence2,score\nhot,cold,1\nup,down,2\none,two,4\n"
    )
    files.append(str(tmp_path / "x" / "sts.csv"))
    encoders = [tmp_path / "a" / "v1.0" / "encoder", tmp_path / "b" / "v1.0" / "encoder"]
    for encoder in encoders:
        shutil.copytree(bert_folder, encoder)
    (tmp_path / "tfidf").symlink_to(encoders[0])
    models = (*map(str, encoders), str(tmp_path / "tfidf"))
    baselines = (*(f"mean={e}" for e in encoders), *(f"cls={e}" for e in encoders), "tfidf")
    report = run(EvaluateSpec(models=models, baselines=baselines, sts=tuple(files)))
    assert len(report.scores) == len(models) + len(baselines)
    for found in report.scores.values():
        assert len({score.data for score in found}) == len(files)
    rows = [line for line in report.table.splitlines() if line.startswith("| sts |")]
    assert len(rows) == len(files)
    assert all(line.count("|") == 5 + len(models) + len(baselines) - 1 for line in rows)


def test_cross_encoder_of_several_classes_is_refused(tmp_path, pair_folder):
    CrossEncoder.load(pair_folder("bert"), num_outputs=3).save(tmp_path / "three")
    names = {"sentence1": TEXTS[:20], "sentence2": TEXTS[20:40]}
    scored = write(tmp_path / "s.parquet", **names, score=RNG.random(20))
    labelled = write(tmp_path / "p.parquet", **names, label=[0, 1] * 10)
    for files in ({"sts": (scored,)}, {"pairs": (labelled,)}):
        with pytest.raises(ValueError, match="three .*3 classes"):
            run(EvaluateSpec(models=(str(tmp_path / "three"),), **files))
