"""`sbert pairs --method ivf`: its certificate is true of the pairs that are published."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.synthetic import write_vectors

from pipelines.artifacts.errors import TargetMissed
from pipelines.artifacts.reader import Artifact
from pipelines.pairs import job as pairs_job
from pipelines.pairs.spec import PairsSpec
from pipelines.run import gates
from sbert_core.join.bounded import paired_cosines

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
THRESHOLD = 0.9


def join_cells(rows, folder, address, recall):
    write_vectors(folder / "v", [rows])
    spec = PairsSpec(
        vectors=str(folder / "v"),
        out=str(folder / "p"),
        threshold=THRESHOLD,
        method="ivf",
        recall=recall,
        address=address,
    )
    return pairs_job.run(spec)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def partners(rng, rows, cos):
    """For each row another at that cosine."""
    other = rng.standard_normal(rows.shape)
    other = unit(other - np.einsum("nd,nd->n", other, rows)[:, None] * rows)
    return unit(cos * rows + (1 - cos**2) ** 0.5 * other)


def true_pairs(rows, least, below=2.0):
    """Pairs of different vectors from a cosine up to another, by brute force."""
    found = set()
    for first in range(0, len(rows), 1000):
        a, b = np.nonzero(rows[first : first + 1000] @ rows.T >= least - 1e-5)
        a, b = a[a + first < b] + first, b[a + first < b]
        cos = paired_cosines(rows[a], rows[b])
        is_right = (cos >= np.float32(least)) & (cos < below) & (rows[a] != rows[b]).any(axis=1)
        found |= set(zip(a[is_right].tolist(), b[is_right].tolist(), strict=True))
    return found


def published_pairs(out, rows):
    """Published pairs of different vectors."""
    table = pq.read_table(Artifact.open(out).folder)
    a, b = table["id_a"].to_numpy(), table["id_b"].to_numpy()
    is_other = (rows[a] != rows[b]).any(axis=1)
    return set(zip(a[is_other].tolist(), b[is_other].tolist(), strict=True))


def test_certificate_of_repeated_rows_counts_published_pairs(tmp_path, ray_address):
    """Every row is looked up, so what is estimated is what is true."""
    rng = np.random.default_rng(0)
    base = unit(rng.standard_normal((1200, 16)))
    hard = unit(rng.standard_normal((30, 16)))
    hard = np.concatenate([hard, partners(rng, hard, 0.901)])
    giant = np.repeat(partners(rng, base[:1], 0.95), 1100, axis=0)  # listed as a group
    rows = rng.permutation(np.concatenate([base, np.repeat(hard, 60, axis=0), giant]))
    report = join_cells(rows, tmp_path, ray_address, recall=0.5)
    certificate = report.certificate
    assert certificate is not None
    first = np.unique(rows, axis=0, return_index=True, return_inverse=True, return_counts=True)
    is_written = (first[3][first[2]] <= 1000) | (first[1][first[2]] == np.arange(len(rows)))
    want = {(a, b) for a, b in true_pairs(rows, THRESHOLD) if is_written[a] and is_written[b]}
    found = published_pairs(tmp_path / "p", rows)
    assert found < want, "the corpus is to be hard enough for a miss"
    assert (certificate.found, certificate.missed) == (len(found), len(want - found))
    assert certificate.low == certificate.value == len(found) / len(want)


def test_recall_of_the_lowest_band_that_can_be_reached_is_reached(tmp_path, ray_address):
    """A few pairs just above the threshold among a hundred thousand easy ones."""
    rng = np.random.default_rng(0)
    easy = np.repeat(unit(rng.standard_normal((60, 24))), 60, axis=0)
    easy = unit(easy + 0.01 * rng.standard_normal(easy.shape))
    hard = unit(rng.standard_normal((300, 24)))
    rows = rng.permutation(np.concatenate([easy, hard, partners(rng, hard, 0.905)]))
    report = join_cells(rows, tmp_path, ray_address, recall=0.95)
    assert report.certificate is not None and report.certificate.bands[0].value >= 0.95
    want = true_pairs(rows, THRESHOLD, THRESHOLD + 0.02)
    assert len(want & published_pairs(tmp_path / "p", rows)) >= 0.95 * len(want) > 250


@pytest.fixture
def clean_rows():
    """No two are alike."""
    return np.random.default_rng(0).standard_normal((3000, 64)).astype(np.float32)


def test_corpus_without_pairs_is_certified_by_how_many_may_be_missing(
    clean_rows, tmp_path, ray_address, monkeypatch
):
    monkeypatch.setattr("pipelines.pairs.ivf.CERTIFIED_ROWS", 512)
    monkeypatch.setattr(pairs_job, "EXACT_CORE_SECONDS", 0.0)
    report = join_cells(clean_rows, tmp_path, ray_address, recall=0.95)
    certificate = report.certificate
    assert certificate is not None and report.method == "ivf" and report.pairs == 0
    assert (certificate.found, certificate.missed, certificate.low) == (0, 0, 0)
    assert 0 < certificate.most_missed <= 0.05 * 300
    [gate] = gates.measure_gates({"min_recall": 0.95}, {"pairs": report})
    assert gate.is_met


def test_sample_too_small_to_certify_is_replaced_by_the_exact_join(
    clean_rows, tmp_path, ray_address, monkeypatch
):
    monkeypatch.setattr("pipelines.pairs.ivf.CERTIFIED_ROWS", 16)
    monkeypatch.setattr("pipelines.pairs.ivf.ATTEMPTS", 2)
    report = join_cells(clean_rows, tmp_path, ray_address, recall=0.95)
    assert (report.method, report.certificate, report.pairs) == ("exact", None, 0)
    monkeypatch.setattr(pairs_job, "EXACT_CORE_SECONDS", 0.0)
    with pytest.raises(TargetMissed):
        join_cells(clean_rows, tmp_path / "other", ray_address, recall=0.95)
    assert not (tmp_path / "other" / "p" / "_manifest.json").exists()
