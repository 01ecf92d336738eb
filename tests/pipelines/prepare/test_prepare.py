"""`sbert prepare`: what it keeps, what it leaves out and why, and what it refuses."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from support.embedding import assert_nothing_but_the_artifact, published_bytes, sentences

from pipelines.artifacts.reader import Artifact
from pipelines.prepare.job import run
from pipelines.prepare.spec import PrepareSpec
from sbert_core.training.exclusions import Exclusion, ExclusionReason

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _ray(ray_address, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", ray_address)


def prepare(files, out, address, **options):
    files = tuple(map(str, files if isinstance(files, list) else [files]))
    return run(PrepareSpec(files=files, out=str(out), address=address, **options))


def shards_of(out, split):
    artifact = Artifact.open(out)
    files = [f for f in artifact.manifest.files if f.source["split"] == split]
    return [pq.read_table(out / file.path) for file in files]


def left_out(out):
    return [row for batch in Artifact.open(out).quarantined() for row in batch.to_pylist()]


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_pairs_are_cleaned_split_and_dealt(tmp_path, ray_address):
    a, b = sentences(600, seed=1), sentences(600, seed=2)
    label = (["Entailment", "neutral", "CONTRADICTION"] * 200)[:600]
    label[10] = "-"
    a[20], b[20], label[20] = a[5].upper(), f"  {b[5]} ", label[5]  # the same but for case
    a[21], b[21], label[21] = a[6], b[6], "neutral" if label[6] != "neutral" else "entailment"
    first = write(tmp_path / "a.parquet", premise=a[:300], hypothesis=b[:300], label=label[:300])
    pa.csv.write_csv(
        pa.table({"premise": a[300:], "hypothesis": b[300:], "label": label[300:]}),
        tmp_path / "b.csv",
    )
    banned = write(tmp_path / "eval.parquet", sentence1=[a[400].title()], score=[0.5])
    out = tmp_path / "out"
    report = prepare(
        [first, tmp_path / "b.csv"],
        out,
        ray_address,
        format="pairs",
        skip_label=("-",),
        exclude=(str(banned),),
        dev_fraction=0.2,
    )
    assert (report.repeats, report.conflicts, report.excluded, report.skipped) == (1, 1, 1, 1)
    assert report.train + report.dev == 596
    assert 100 <= report.dev <= 120
    assert report.classes == ["contradiction", "entailment", "neutral"]
    reasons = {row["reason"] for row in left_out(out)}
    subjects = ("row 5 of a.parquet", "row 6 of a.parquet", "eval.parquet", "-")
    expected = map(ExclusionReason, Exclusion, subjects)
    assert reasons == {reason.sentence for reason in expected}
    train, dev = (pa.concat_tables(shards_of(out, split)) for split in ("train", "dev"))
    texts = [set(t["text_a"].to_pylist()) | set(t["text_b"].to_pylist()) for t in (train, dev)]
    assert not texts[0] & texts[1]
    names = dict(zip(a[::-1], label[::-1], strict=True))  # of equal texts the first
    for row in train.to_pylist():
        assert report.classes[row["label"]] == names[row["text_a"]].casefold()
    masses = [shard["length"].to_numpy().sum() for shard in shards_of(out, "train")]
    assert len(masses) == 8
    assert max(masses) - min(masses) <= train["length"].to_numpy().max()
    assert_nothing_but_the_artifact(out)


def test_same_bytes_again_and_nothing_to_do(tmp_path, ray_address):
    texts = sentences(90)
    file = write(tmp_path / "a.parquet", query=texts[::2], positive=texts[1::2])
    first = prepare(file, tmp_path / "x", ray_address, format="ranking", dev_fraction=0.1)
    second = prepare(file, tmp_path / "y", ray_address, format="ranking", dev_fraction=0.1)
    assert published_bytes(tmp_path / "x") == published_bytes(tmp_path / "y")
    again = prepare(file, tmp_path / "x", "127.0.0.1:1", format="ranking", dev_fraction=0.1)
    assert again.seconds == 0 < first.seconds and second.train == again.train


def test_scores_of_any_range_become_0_to_1(tmp_path, ray_address):
    texts = sentences(12)
    lines = [
        {"sentence1": x, "sentence2": y, "score": s}
        for x, y, s in zip(texts[::2], texts[1::2], [0, 1, 2.5, 4, 5, 3], strict=True)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "out"
    prepare(tmp_path / "a.jsonl", out, ray_address, format="scored", score_range=(0.0, 5.0))
    rows = pa.concat_tables(shards_of(out, "train")).to_pylist()
    truth = {line["sentence1"]: line["score"] / 5 for line in lines}
    assert {row["text_a"]: row["label"] for row in rows} == pytest.approx(truth)


def test_tokens_are_counted_with_the_named_tokenizer(tmp_path, ray_address, bert_folder):
    file = write(tmp_path / "a.parquet", anchor=["the word"], positive=["a"], negative=["of it is"])
    out = tmp_path / "out"
    prepare(file, out, ray_address, format="triplets", tokenizer=str(bert_folder))
    assert shards_of(out, "train")[0]["length"].to_pylist() == [4 + 3 + 5]


BAD = {
    "missing column": ({"x": ["a"], "y": ["b"]}, "scored", r"has no columns .* it has: x, y"),
    "score out of range": (
        {"text_a": ["a"], "text_b": ["b"], "score": [3.8]},
        "scored",
        r"score 3.8 in row 0 of .* is outside 0..1; .*--score-range",
    ),
    "score that is none": (
        {"text_a": ["a"], "text_b": ["b"], "score": ["high"]},
        "scored",
        r"score 'high' in row 0",
    ),
    "unknown label": (
        {"text_a": ["a", "b"], "text_b": ["b", "c"], "label": ["yes", "perhaps"]},
        "pairs",
        r"label 'perhaps' in row 1 of .* is not one of yes, no",
    ),
    "one class only": (
        {"text_a": ["a", "b"], "text_b": ["b", "c"], "label": ["yes", "yes"]},
        "pairs",
        r"all rows have the label 'yes'",
    ),
    "empty text": ({"query": ["a"], "positive": [""]}, "ranking", r"'positive' of row 0 .* empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_named_and_nothing_is_published(tmp_path, ray_address, case):
    columns, kind, message = BAD[case]
    file = write(tmp_path / "a.parquet", **columns)
    out = tmp_path / "out"
    labels = ("yes", "no") if kind == "pairs" else ()
    with pytest.raises(ValueError, match=message):
        prepare(file, out, ray_address, format=kind, labels=labels)
    assert not (out / "_manifest.json").exists()


def test_all_rows_excluded_is_an_error(tmp_path, ray_address):
    file = write(tmp_path / "a.parquet", query=["a"], positive=["b"])
    with pytest.raises(ValueError, match=r"all 1 .*\(1 excluded\)"):
        prepare(file, tmp_path / "out", ray_address, format="ranking", exclude=(str(file),))


def test_missing_files_are_an_error(tmp_path, ray_address):
    with pytest.raises(FileNotFoundError):
        prepare(tmp_path / "none.parquet", tmp_path / "out", ray_address, format="ranking")


def test_lengths_in_characters_without_a_tokenizer(tmp_path, ray_address):
    file = write(tmp_path / "a.parquet", query=["abc", "d"], positive=["de", "f"])
    out = tmp_path / "out"
    prepare(file, out, ray_address, format="ranking")
    lengths = np.concatenate([t["length"].to_numpy() for t in shards_of(out, "train")])
    assert sorted(lengths) == [2, 5]


def test_quotes_of_a_tsv_glue_no_rows_and_numbers_stay_texts(tmp_path, ray_address):
    lines = ["query\tpositive", '"Half open\t1', "b\t2", 'c "quoted" word\t3', "d\t2020-01-01"]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    report = prepare(tmp_path / "a.tsv", out, ray_address, format="ranking")
    assert report.train == 4
    rows = pa.concat_tables(shards_of(out, "train")).to_pylist()
    assert {f"{row['query']}\t{row['positive']}" for row in rows} == set(lines[1:])


def test_texts_of_dictionary_columns_are_excluded(tmp_path, ray_address):
    file = write(tmp_path / "a.parquet", query=["a", "b"], positive=["x", "y"])
    banned = write(tmp_path / "eval.parquet", text=pa.array(["A"]).dictionary_encode())
    report = prepare(file, tmp_path / "out", ray_address, format="ranking", exclude=(str(banned),))
    assert (report.train, report.excluded) == (1, 1)
    numbers = write(tmp_path / "numbers.parquet", score=[1.0])
    with pytest.raises(ValueError, match=r"numbers\.parquet"):
        prepare(file, tmp_path / "x", ray_address, format="ranking", exclude=(str(numbers),))
