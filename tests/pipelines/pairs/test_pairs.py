"""`sbert pairs`: whole runs on Ray against brute force."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.embedding import assert_nothing_but_the_artifact, published_bytes
from support.kills import Job
from support.synthetic import topical_vectors, write_vectors
from transformers import AutoTokenizer, BertForSequenceClassification

from pipelines.artifacts.errors import TargetMissed
from pipelines.artifacts.reader import Artifact
from pipelines.cluster import job as cluster_job
from pipelines.cluster.spec import ClusterSpec
from pipelines.embed import job as embed_job
from pipelines.embed.spec import EmbedSpec
from pipelines.pairs import blocks as plan
from pipelines.pairs import job as pairs_job
from pipelines.pairs.identity import PairsIdentity, SpaceMismatch
from pipelines.pairs.incremental import IncrementalJoin
from pipelines.pairs.setup import TooManyEdges
from pipelines.pairs.spec import JoinMethod, PairsSpec
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.join.bounded import paired_cosines

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
    cos = paired_cosines(a[rows[:, 0]], b[rows[:, 1]])
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


def test_pairs_of_two_artifacts_in_any_number_of_blocks_equal_brute_force(
    vectors, rows, tmp_path, ray_address, monkeypatch
):
    others = rows[::7] + np.float32(0.01)
    write_vectors(tmp_path / "w", [others])
    want = brute(rows, others, 0.8, False)
    for least in (20, 2048):
        monkeypatch.setattr(plan, "LEAST_BLOCK_ROWS", least)
        out = tmp_path / f"p{least}"
        joined(vectors, out, ray_address, threshold=0.8, against=str(tmp_path / "w"))
        assert pairs_of(out) == want
    write_vectors(tmp_path / "x", [others], space="another")
    with pytest.raises(SpaceMismatch) as error:
        joined(vectors, tmp_path / "q", ray_address, against=str(tmp_path / "x"))
    assert error.value.spaces == ("made up", "another")


def test_pairs_large_group_of_equal_rows_is_listed_as_a_group(tmp_path, ray_address):
    [rows] = topical_vectors(3000, DIM)
    rows[500:] = rows[7]
    write_vectors(tmp_path / "v", [rows])
    report = joined(tmp_path / "v", tmp_path / "p", ray_address, threshold=0.7)
    groups = pa.Table.from_batches(
        list(Artifact.open(tmp_path / "p").sidecars("groups"))
    ).to_pydict()
    assert groups["id"] == [7, *range(500, 3000)]
    assert set(groups["representative"]) == {7}
    assert report.groups == 1
    want = brute(rows[:500], rows[:500], 0.7, True)
    assert want and pairs_of(tmp_path / "p") == want
    joined(tmp_path / "v", tmp_path / "none", ray_address, threshold=0.999)
    assert pairs_of(tmp_path / "none") == {}
    with pytest.raises(TooManyEdges):
        joined(tmp_path / "v", tmp_path / "q", ray_address, threshold=0.1, max_edges=3)
    assert not (tmp_path / "q" / "_manifest.json").exists()


def test_pairs_ivf_finds_what_its_certificate_states(tmp_path, ray_address, monkeypatch):
    rng = np.random.default_rng(1)
    [base] = topical_vectors(9000, 48)
    near = base[rng.integers(0, 9000, 6000)] + 0.05 * rng.standard_normal((6000, 48))
    rows = np.concatenate([base, near, base[:50]]).astype(np.float32)
    write_vectors(tmp_path / "v", np.array_split(rng.permutation(rows), 3))
    joined(tmp_path / "v", tmp_path / "exact", ray_address, method="exact")
    exact = pairs_of(tmp_path / "exact")
    for least in (500, 4096):
        monkeypatch.setattr(plan, "LEAST_BLOCK_ROWS", least)
        out = tmp_path / f"ivf{least}"
        report = joined(tmp_path / "v", out, ray_address, method="ivf", recall=0.98)
        own = pairs_of(out)
        assert own.items() <= exact.items()
        # Pairs of equal rows are found without a search and are no part of the certificate.
        different = {pair for pair in exact if exact[pair] < 1}
        truth = len(different & own.keys()) / len(different)
        assert report.certificate is not None
        assert 0.98 <= report.certificate.low <= truth + 1e-9
        assert (out / "certificate.json").read_bytes() == report.certificate.to_json()
        assert_nothing_but_the_artifact(out, also=("certificate.json",))
    # A certificate holds for the vectors it was measured on, and up to its recall.
    certified = Artifact.pairs(out).manifest
    places = {"vectors": str(tmp_path / "v"), "out": str(out)}
    for recall, is_enough in ((0.98, True), (0.99999, False)):
        spec = PairsSpec(**places, threshold=0.9, method=JoinMethod.IVF, recall=recall)
        growth = IncrementalJoin.plan(PairsIdentity.of(spec), certified)
        assert (growth is not None) == is_enough
    assert report.certificate.bands[0].start == 0.9
    others = rng.permutation(rows)[:2000] + np.float32(0.001)
    write_vectors(tmp_path / "w", [others])
    both = {"against": str(tmp_path / "w")}
    joined(tmp_path / "v", tmp_path / "ab", ray_address, method="exact", **both)
    joined(tmp_path / "v", tmp_path / "cd", ray_address, method="ivf", recall=0.9, **both)
    exact, own = pairs_of(tmp_path / "ab"), pairs_of(tmp_path / "cd")
    assert own.items() <= exact.items() and len(own) >= 0.9 * len(exact)
    monkeypatch.setattr("pipelines.pairs.ivf.ATTEMPTS", 1)
    monkeypatch.setattr("pipelines.pairs.ivf.CERTIFIED_ROWS", 300)
    monkeypatch.setattr(pairs_job, "EXACT_CORE_SECONDS", 0.0)
    with pytest.raises(TargetMissed):
        joined(tmp_path / "v", tmp_path / "no", ray_address, method="ivf", recall=0.9999)
    assert not (tmp_path / "no" / "_manifest.json").exists()


def nearest(rows, others, k, is_self):
    """The k nearest of each row, the smaller id first among equals."""
    found = {}
    for n, row in enumerate(rows):
        cos = paired_cosines(np.repeat(row[None], len(others), 0), others)
        order = [m for m in np.lexsort((np.arange(len(others)), -cos)) if not (is_self and m == n)]
        found |= {(n, int(m)): float(cos[m]) for m in order[:k]}
    return found


@pytest.mark.parametrize("k", [1, 5])
def test_pairs_top_k_equal_brute_force(vectors, rows, k, tmp_path, ray_address):
    joined(vectors, tmp_path / "p", ray_address, top_k=k)
    assert pairs_of(tmp_path / "p") == nearest(rows, rows, k, True)
    others = rows[::9] + np.float32(0.01)
    write_vectors(tmp_path / "w", [others])
    joined(vectors, tmp_path / "q", ray_address, top_k=k, against=str(tmp_path / "w"))
    assert pairs_of(tmp_path / "q") == nearest(rows, others, k, False)
    joined(vectors, tmp_path / "r", ray_address, top_k=k, threshold=0.9)
    want = nearest(rows, rows, k, True)
    assert pairs_of(tmp_path / "r") == {p: c for p, c in want.items() if c >= np.float32(0.9)}


def test_pairs_of_changed_vectors_join_new_rows_with_all(rows, tmp_path, ray_address):
    blocks = np.array_split(rows, 4)
    write_vectors(tmp_path / "v", blocks[:3])
    joined(tmp_path / "v", tmp_path / "p", ray_address, threshold=0.8)
    write_vectors(tmp_path / "v", blocks)
    report = joined(tmp_path / "v", tmp_path / "p", ray_address, threshold=0.8)
    assert report.grown is not None
    assert (report.grown.new_rows, report.grown.known_rows) == (90, 270)
    assert pairs_of(tmp_path / "p") == brute(rows, rows, 0.8, True)
    # Without the first block ids begin again, so a block in the middle goes instead.
    less = [blocks[0], blocks[1] * np.float32(1.5) + np.float32(0.2), *blocks[2:]]
    write_vectors(tmp_path / "v", less)
    report = joined(tmp_path / "v", tmp_path / "p", ray_address, threshold=0.8)
    assert report.grown is not None and report.grown.known_rows == 270
    changed = np.concatenate(less)
    assert pairs_of(tmp_path / "p") == brute(changed, changed, 0.8, True)
    again = joined(tmp_path / "v", tmp_path / "p", ray_address, threshold=0.7)
    assert again.grown is None


def test_pairs_update_counts_distinct_vectors_and_keeps_large_groups(tmp_path, ray_address):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((2000, 8)).astype(np.float32)
    rows[500:1600] = rows[3]  # 1,101 equal rows, in two files
    new = rng.standard_normal((300, 8)).astype(np.float32)
    new[:5], new[5:7], new[7:9] = rows[10:15], rows[10], new[50]
    new[9:11] = rows[3] + np.float32([0.01, 0, 0, 0, 0, 0, 0, 0])
    old = np.array_split(rows, 2)
    for name, last, is_grown in (("near", new, True), ("equal", np.r_[new, rows[3:4]], False)):
        vectors, fresh, grown = (tmp_path / f"{name}-{part}" for part in "vfg")
        write_vectors(vectors, old)
        joined(vectors, grown, ray_address, threshold=0.9)
        write_vectors(vectors, [*old, last])
        report = joined(vectors, grown, ray_address, threshold=0.9)
        assert (report.grown is not None) == is_grown
        want = joined(vectors, fresh, ray_address, threshold=0.9)
        assert pairs_of(grown) == pairs_of(fresh)
        assert (report.distinct, report.groups) == (want.distinct, 1)
        assert report.distinct == len(np.unique(np.concatenate([rows, last]), axis=0))


def test_pairs_fifty_thousand_equal_rows_are_one_group(tmp_path, ray_address):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((51_000, 8)).astype(np.float32)
    rows[1000:] = rows[3]
    write_vectors(tmp_path / "v", [rng.permutation(rows)])
    joined(tmp_path / "v", tmp_path / "p", ray_address, threshold=0.9)
    spec = ClusterSpec(pairs=str(tmp_path / "p"), out=str(tmp_path / "c"))
    [summary] = cluster_job.run(spec).summaries
    assert summary.largest[0].rows >= 50_001 and summary.rows_by_reason["duplicate"] >= 49_999


def test_pairs_in_the_band_are_scored_by_a_cross_encoder(
    bert_folder, pair_folder, tmp_path, ray_address
):
    texts = [f"{noun} {verb}" for noun in ("cat", "dog", "ship") for verb in ("a", "b", "c", "d")]
    pq.write_table(pa.table({"id": list("lkjihgfedcba"), "text": texts}), tmp_path / "t.parquet")
    tokenizer = AutoTokenizer.from_pretrained(pair_folder("bert"))
    model = BertForSequenceClassification.from_pretrained(bert_folder, num_labels=1)
    model.save_pretrained(tmp_path / "cross")
    tokenizer.save_pretrained(tmp_path / "cross")
    embed_job.run(
        EmbedSpec(
            corpus=str(tmp_path / "t.parquet"),
            model=str(bert_folder),
            out=str(tmp_path / "v"),
            address=ray_address,
        )
    )
    scored = {"rerank": str(tmp_path / "cross"), "band": (0.8, 0.97)}
    joined(tmp_path / "v", tmp_path / "p", ray_address, threshold=0.7, **scored)
    table = pq.read_table(Artifact.open(tmp_path / "p").folder).to_pylist()
    inside = [row for row in table if np.float32(0.8) <= row["cos"] <= np.float32(0.97)]
    assert 0 < len(inside) < len(table)
    by_id = dict(zip("lkjihgfedcba", texts, strict=True))
    both = [(by_id[row["id_a"]], by_id[row["id_b"]]) for row in inside]
    want = CrossEncoder.load(tmp_path / "cross").predict(both)
    np.testing.assert_allclose([row["rerank"] for row in inside], want, atol=1e-5)
    assert all(row["rerank"] is None for row in table if row not in inside)
    least = float(np.median(want))
    spec = ClusterSpec(pairs=str(tmp_path / "p"), out=str(tmp_path / "c"), min_rerank=least)
    cluster_job.run(spec)
    good = [row for row in table if row["rerank"] is None or row["rerank"] >= least]
    near = {frozenset((row["id_a"], row["id_b"])) for row in good}
    for row in pq.read_table(Artifact.open(tmp_path / "c").folder).to_pylist():
        assert row["keep"] or frozenset((row["id"], row["witness"])) in near


def test_pairs_killed_run_continues_to_equal_bytes(tmp_path, ray_address):
    write_vectors(tmp_path / "v", topical_vectors(14_000, 96))
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
