"""Tasks of `prepare`, called as plain functions."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.encoders import tiny_tokenizer

from sbert_core.choices import ExampleFormat
from sbert_core.corpus.files import find_corpus
from sbert_core.storage import storage_at
from sbert_core.training.examples import LabelRules, text_keys
from sbert_core.training.exclusions import Exclusion, ExclusionReason, count_exclusions
from workers.prepare import PrepareJob, read_examples, read_text_keys, write_rows

ROWS = {"text_a": ["a b", "c", "a b"], "text_b": ["d", "e f g", "D"], "label": ["Yes", "no", "no"]}


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table(ROWS), folder / "rows.parquet")
    return find_corpus(str(folder)).files[0]


def make_job(tmp_path, **options):
    settings = {
        "out": str(tmp_path / "out"),
        "work": "_work/x",
        "kind": ExampleFormat.PAIRS,
        "columns": (),
        "rules": LabelRules(),
        "tokenizer": None,
    }
    return PrepareJob(**(settings | options))


def test_read_examples_pairs_gives_keys_lengths_and_labels(tmp_path, file):
    job = make_job(tmp_path)
    rows = read_examples(job, str(tmp_path / "in"), file, 0)
    assert rows.labels.tolist() == ["yes", "no", "no"]
    assert rows.lengths.tolist() == [4, 6, 4]  # characters
    np.testing.assert_array_equal(rows.keys[:, 0], text_keys(ROWS["text_a"]))
    assert (rows.keys[0] == rows.keys[2]).all()  # equal but for case
    assert job.storage.stat(job.rows_name(0)) is not None


def test_read_examples_with_a_tokenizer_counts_tokens(tmp_path, file):
    tokenizer = tiny_tokenizer().backend_tokenizer
    job = make_job(tmp_path, tokenizer=tokenizer.to_str())
    rows = read_examples(job, str(tmp_path / "in"), file, 0)
    texts = zip(ROWS["text_a"], ROWS["text_b"], strict=True)
    assert rows.lengths.tolist() == [sum(len(tokenizer.encode(t).ids) for t in ts) for ts in texts]


def test_read_examples_with_an_unknown_class_is_refused(tmp_path, file):
    job = make_job(tmp_path, rules=LabelRules(classes=("yes",)))
    with pytest.raises(ValueError, match="row 1"):
        read_examples(job, str(tmp_path / "in"), file, 0)


def test_read_text_keys_are_those_of_all_text_columns(tmp_path, file):
    keys = read_text_keys(str(tmp_path / "in"), file)
    texts = [*ROWS["text_a"], *ROWS["text_b"], *ROWS["label"]]
    np.testing.assert_array_equal(keys, np.unique(text_keys(texts)))


def test_write_rows_takes_rows_in_order_and_numbers_the_classes(tmp_path, file):
    job = make_job(tmp_path)
    read_examples(job, str(tmp_path / "in"), file, 0)
    read_examples(job, str(tmp_path / "in"), file, 1)
    pieces = [(1, np.array([2, 0])), (0, np.array([1]))]
    written = write_rows(job, pieces, "data/shard", ["no", "yes"], {"reason": ["x", "y", "z"]})
    table = pq.read_table(pa.BufferReader(storage_at(job.out).buffer(written.path)))
    assert written.rows == 3
    assert table["label"].to_pylist() == [0, 1, 0]
    assert table["row"].to_pylist() == [2, 0, 1]
    assert table["reason"].to_pylist() == ["x", "y", "z"]


def test_exclusions_are_counted_by_kind_and_spelled_as_published():
    reasons = [
        ExclusionReason(Exclusion.REPEATS, "row 1 of a.tsv"),
        ExclusionReason(Exclusion.CONFLICTS, "row 1 of a.tsv"),
        ExclusionReason(Exclusion.EXCLUDED, "{test}.tsv"),
        ExclusionReason(Exclusion.SKIPPED, "a repeats"),
        ExclusionReason(Exclusion.SKIPPED, "-"),
    ]
    assert [reason.sentence for reason in reasons] == [
        "repeats row 1 of a.tsv",
        "contradicts row 1 of a.tsv",
        "a text occurs in {test}.tsv",
        "label a repeats is skipped",
        "label - is skipped",
    ]
    counts = {"repeats": 1, "conflicts": 1, "excluded": 1, "skipped": 2}
    assert list(count_exclusions(reasons).items()) == list(counts.items())
