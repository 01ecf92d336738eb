"""`sbert pairs`: whole runs on Ray against brute force."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from embedding import assert_nothing_but_the_artifact, published_bytes
from kills import Job
from synthetic import topical_vectors, write_vectors

from pipelines import pairs as pairs_job
from pipelines.artifacts import Artifact
from pipelines.joining import plan
from pipelines.specs import PairsSpec
from sbert_core.neighbours.join import cosines

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
DIM = 24


def joined(vectors, out, address, **options):
    spec = PairsSpec(vectors=str(vectors), out=str(out), address=address, **options)
    return pairs_job.run(spec)


def pairs_of(out):
    """(id_a, id_b) -> cos; each pair once."""
    table = pq.read_table(Artifact.open(out).folder).to_pydict()
    pairs = list(zip(table["id_a"], table["id_b"], strict=True))
    assert len(set(pairs)) == len(pairs)
    return dict(zip(pairs, table["cos"], strict=True))


def brute(a, b, threshold, is_self):
    rows = np.array([(i, j) for i in range(len(a)) for j in range(len(b)) if not is_self or i < j])
    cos = cosines(a[rows[:, 0]], b[rows[:, 1]])
    reach = np.flatnonzero(cos >= np.float32(threshold))
    return {tuple(rows[n].tolist()): float(cos[n]) for n in reach}


@pytest.fixture(scope="module")
def rows():
    """Groups of near and of equal vectors."""
    rng = np.random.default_rng(3)
    base = rng.standard_normal((60, DIM))
    near = base[rng.integers(0, 60, 300)] + 0.15 * rng.standard_normal((300, DIM))
    equal = near[rng.integers(0, 40, 60)]
    return rng.permutation(np.concatenate([near, equal])).astype(np.float32)


@pytest.fixture(scope="module")
def vectors(rows, tmp_path_factory):
    return write_vectors(tmp_path_factory.mktemp("v") / "v", np.array_split(rows, 4))


@pytest.mark.parametrize("threshold", [0.9, 0.5, 1.0])
def test_pairs_are_those_of_brute_force(
    vectors, rows, threshold, tmp_path, ray_address, monkeypatch
):
    monkeypatch.setattr(plan, "LEAST_BLOCK_ROWS", 50)
    report = joined(vectors, tmp_path / "p", ray_address, threshold=threshold)
    assert pairs_of(tmp_path / "p") == brute(rows, rows, threshold, True)
    assert (report.rows, report.is_new) == (360, True)
    assert not joined(vectors, tmp_path / "p", "127.0.0.1:1", threshold=threshold).is_new
    assert_nothing_but_the_artifact(tmp_path / "p")


def test_two_artifacts_and_any_number_of_blocks(vectors, rows, tmp_path, ray_address, monkeypatch):
    others = rows[::7] + np.float32(0.01)
    write_vectors(tmp_path / "w", [others])
    want = brute(rows, others, 0.8, False)
    for least in (20, 2048):
        monkeypatch.setattr(plan, "LEAST_BLOCK_ROWS", least)
        out = tmp_path / f"p{least}"
        joined(vectors, out, ray_address, threshold=0.8, against=str(tmp_path / "w"))
        assert pairs_of(out) == want
    write_vectors(tmp_path / "x", [others], space="another")
    with pytest.raises(ValueError, match="they cannot be compared: embed both with one model"):
        joined(vectors, tmp_path / "q", ray_address, against=str(tmp_path / "x"))


def test_a_giant_group_is_a_group(tmp_path, ray_address):
    [rows] = topical_vectors(3000, DIM)
    rows[500:] = rows[7]
    write_vectors(tmp_path / "v", [rows])
    report = joined(tmp_path / "v", tmp_path / "p", ray_address, threshold=0.7)
    groups = pa.Table.from_batches(list(Artifact.open(tmp_path / "p").beside("groups"))).to_pydict()
    assert groups["id"] == [7, *range(500, 3000)]
    assert set(groups["representative"]) == {7}
    assert report.groups == 1
    want = brute(rows[:500], rows[:500], 0.7, True)
    assert want and pairs_of(tmp_path / "p") == want
    joined(tmp_path / "v", tmp_path / "none", ray_address, threshold=0.999)
    assert pairs_of(tmp_path / "none") == {}
    with pytest.raises(ValueError, match=r"more than --max-edges 3; the row with id \d+ alone has"):
        joined(tmp_path / "v", tmp_path / "q", ray_address, threshold=0.1, max_edges=3)
    assert not (tmp_path / "q").exists()


def test_a_killed_run_goes_on(tmp_path, ray_address):
    write_vectors(tmp_path / "v", topical_vectors(30_000, 96))
    words = ["pairs", str(tmp_path / "v"), "--threshold", "0.6", "--out"]
    joined(tmp_path / "v", tmp_path / "calm", ray_address, threshold=0.6)
    job = Job([*words, str(tmp_path / "out")], tmp_path / "log")
    job.start()
    job.until(lambda: list(tmp_path.glob("out/_work/*/edges-*.json")))
    job.kill()
    job.start()
    assert job.wait() == 0, job.log.read_text()
    assert published_bytes(tmp_path / "out") == published_bytes(tmp_path / "calm")
    assert_nothing_but_the_artifact(tmp_path / "out")
