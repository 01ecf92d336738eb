"""`sbert threshold` against brute force, without Ray."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.joins import all_cosines, near_rows
from support.manifests import manifest_of
from support.synthetic import write_vectors

from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from pipelines.threshold import job as threshold_job
from pipelines.threshold.job import LEVELS, BadLabels
from pipelines.threshold.spec import ThresholdSpec
from sbert_core.vectors.part import put_table

NUM_ROWS, DIM = 400, 24


@pytest.fixture(scope="module")
def rows():
    return near_rows(NUM_ROWS, DIM, seed=3)


@pytest.fixture(scope="module")
def vectors(rows, tmp_path_factory):
    return write_vectors(tmp_path_factory.mktemp("v") / "v", np.array_split(rows, 3))


@pytest.fixture(scope="module")
def cosines(rows):
    """Of all pairs."""
    return all_cosines(rows, rows)[np.triu_indices(NUM_ROWS, 1)]


def measure(source, **options):
    return threshold_job.run(ThresholdSpec(source=str(source), **options))


def publish_pairs(vectors, cos, threshold, out):
    """Pairs of all rows as `sbert pairs` publishes them."""
    a, b = np.triu_indices(NUM_ROWS, 1)
    reach = cos >= np.float32(threshold)
    table = pa.table({"id_a": a[reach], "id_b": b[reach], "cos": cos[reach]})
    source = Artifact.vectors(vectors)
    inputs = {"vectors": source.uri, "generation": source.manifest.generation, "files": []}
    counts = {"a": NUM_ROWS}
    facts = {"rows": counts, "distinct": counts, "large_groups": {"a": 0}}
    with Writer.claim(out) as writer:
        file = put_table(writer.storage, "data/0123456789abcdef/0", table)
        manifest = manifest_of(
            "pairs",
            generation="0123456789abcdef",
            schema={field.name: str(field.type) for field in table.schema},
            rows=table.num_rows,
            files=(file,),
            spec={"threshold": threshold, "top_k": None, "space": "made up", "method": "exact"},
            made_from={"a": inputs},
            facts={**facts, "certificate": None, "grown": None},
        )
        writer.publish(manifest, rows_in=table.num_rows, rows_out=file.rows, run={})
    return out


def test_threshold_of_vectors_measures_the_share_of_random_pairs(vectors, cosines):
    report = measure(vectors)
    assert [level.cos for level in report.levels] == list(LEVELS)
    for level in report.levels:
        # The sample is the whole corpus here.
        share = (cosines >= np.float32(level.cos)).mean()
        assert level.chance_per_million == pytest.approx(1e6 * share)
        assert level.expected == round(share * len(cosines)) and level.pairs is None
        assert all(pair.cos >= level.cos - 1e-6 for pair in level.samples)
    assert report.chance.rows == NUM_ROWS and report.chance.all_pairs == len(cosines)
    assert report.chance.mean_cos == pytest.approx(cosines.mean(), abs=0.01)
    assert report.best is None


def test_threshold_samples_are_the_pairs_just_above_a_level(vectors, cosines):
    report = measure(vectors, samples=5)
    a, b = np.triu_indices(NUM_ROWS, 1)
    by_pair = dict(zip(zip(a.tolist(), b.tolist(), strict=True), cosines.tolist(), strict=True))
    for level in report.levels:
        above = np.sort(cosines[cosines >= np.float32(level.cos)])[:5]
        assert [pair.cos for pair in level.samples] == above.tolist()
        for pair in level.samples:
            assert by_pair[tuple(sorted((pair.id_a, pair.id_b)))] == pair.cos
            assert pair.text_a is None  # these vectors have no corpus


def test_threshold_of_pairs_counts_them_from_their_threshold_on(vectors, cosines, tmp_path):
    report = measure(publish_pairs(vectors, cosines, 0.85, tmp_path / "p"))
    assert [level.cos for level in report.levels] == [0.85, 0.9, 0.95, 0.98, 1.0]
    for level in report.levels:
        assert level.pairs == (cosines >= np.float32(level.cos)).sum()


@pytest.fixture
def labels(rows, tmp_path):
    """Pairs of the first sixty rows, labelled by their cosine."""
    a, b = np.triu_indices(60, 1)
    truth = all_cosines(rows[:60], rows[:60])[a, b] >= 0.9
    return pa.table({"id_a": a, "id_b": b, "label": truth.astype(int)})


def test_threshold_by_labels_finds_the_one_that_made_them(vectors, labels, tmp_path):
    pq.write_table(labels, tmp_path / "labels.parquet")
    report = measure(vectors, labelled=str(tmp_path / "labels.parquet"))
    assert report.best.f1 == 1.0 and report.labelled_pairs == labels.num_rows
    [exact] = [level for level in report.levels if level.cos == 0.9]
    assert (exact.precision, exact.recall) == (1.0, 1.0)
    high = report.levels[-1]
    assert high.cos == 1.0 and high.precision == 1.0
    assert high.pairs < exact.pairs and high.recall == high.pairs / exact.pairs


@pytest.mark.parametrize("damage", ["no rows", "one label", "unknown label", "unknown id"])
def test_threshold_labels_that_cannot_be_scored_are_refused(damage, vectors, labels, tmp_path):
    if damage == "no rows":
        labels = labels.slice(0, 0)
    elif damage == "one label":
        labels = labels.filter(pc.equal(labels["label"], 0))
    elif damage == "unknown label":
        labels = labels.set_column(2, "label", pa.array(["maybe"] * labels.num_rows))
    else:
        labels = labels.set_column(0, "id_a", pa.array(np.full(labels.num_rows, NUM_ROWS)))
    path = str(tmp_path / "labels.parquet")
    pq.write_table(labels, path)
    with pytest.raises(BadLabels) as error:
        measure(vectors, labelled=path)
    assert error.value.path == path
