"""`sbert cluster`: whole jobs against the rule over brute-force cosines."""

import csv
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.clustering import clustered, paired, table_of
from support.embedding import assert_nothing_but_the_artifact
from support.synthetic import topical_vectors, write_vectors

from pipelines.artifacts.errors import GateFailed, WrongKind
from pipelines.artifacts.ids import IdIndex
from pipelines.artifacts.reader import Artifact
from sbert_core.clusters.keep_rules import UnknownKeepRule
from sbert_core.join.bounded import paired_cosines

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]
DIM = 24


def near_rows(number, seed=3):
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((max(1, number // 4), DIM))
    near = base[rng.integers(0, len(base), number)] + 0.15 * rng.standard_normal((number, DIM))
    near[-number // 10 :] = near[: number // 10]
    return rng.permutation(near).astype(np.float32)


@pytest.fixture(scope="module")
def rows():
    return near_rows(400)


@pytest.fixture(scope="module")
def pairs(rows, tmp_path_factory, ray_address):
    folder = tmp_path_factory.mktemp("pairs")
    vectors = write_vectors(folder / "v", np.array_split(rows, 3))
    return paired(vectors, folder / "p", ray_address)


def changes_of(out):
    batches = list(Artifact.open(out).sidecars("changes"))
    return [row for batch in batches for row in batch.to_pylist()]


def sequential(rows, order, threshold):
    """The rule over brute-force cosines: kept rows, and the witness of every other."""
    kept, witness = [], {}
    for row in order:
        if kept:
            cos = paired_cosines(rows[[row] * len(kept)], rows[kept])
            best = min(range(len(kept)), key=lambda n: (-cos[n], kept[n]))
            if cos[best] >= np.float32(threshold):
                witness[row] = (kept[best], float(cos[best]))
                continue
        kept.append(row)
    return set(kept), witness


@pytest.mark.parametrize("method", ["leaders", "components"])
def test_cluster_rows_are_decided_by_the_rule(rows, pairs, method, tmp_path):
    out = tmp_path / "c"
    report = clustered(
        pairs,
        out,
        method=method,
        thresholds=(0.85, 0.95),
        keep="parity=odd,longest",
        max_cluster_share=1.0,
    )
    ids = np.arange(len(rows))
    order = sorted(ids.tolist(), key=lambda n: (n % 2 == 0, -(n * 7 % 13), n))
    for number, threshold in enumerate((0.85, 0.95)):
        kept, witness = sequential(rows, order, threshold)
        made = table_of(out, threshold)
        assert list(made) == ids.tolist()
        assert {n for n, row in made.items() if row["keep"]} == kept
        assert {
            n: (row["witness"], row["cos_to_witness"]) for n, row in made.items() if not row["keep"]
        } == witness
        summary = report.summaries[number]
        assert (summary.kept, summary.removed) == (len(kept), len(witness))
        for row in made.values():
            assert row["canonical"] == (row["id"] if row["keep"] else row["witness"])
            assert row["cluster"] <= row["id"]
            assert made[row["cluster"]]["cluster"] == row["cluster"]
            assert row["cluster"] == made[row["canonical"]]["cluster"]
        listed = [f for f in Artifact.open(out).manifest.sidecars if f.path.startswith("keep/")]
        own = pq.read_table(out / listed[number].path)["id"].to_pylist()
        assert own == sorted(kept)
    assert_nothing_but_the_artifact(out, also=("summary.json", "topics.json"))
    assert not clustered(
        pairs,
        out,
        method=method,
        thresholds=(0.95, 0.85),
        keep="parity=odd,longest",
        max_cluster_share=1.0,
    ).is_new


def test_cluster_components_of_a_chain_are_refused_and_leaders_have_witnesses(
    tmp_path, ray_address
):
    """0, 15, 30 ... degrees: every neighbour is near, the ends are not."""
    angle = np.deg2rad(15) * 0.01 * np.arange(2000)
    chain = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    write_vectors(tmp_path / "v", [chain])
    pairs = paired(tmp_path / "v", tmp_path / "p", ray_address, np.cos(np.deg2rad(1)))
    with pytest.raises(GateFailed, match="2,000"):
        clustered(pairs, tmp_path / "c", method="components")
    assert not (tmp_path / "c" / "_manifest.json").exists()
    clustered(pairs, tmp_path / "c")
    made = table_of(tmp_path / "c")
    for row in made.values():
        if not row["keep"]:
            assert made[row["witness"]]["keep"]
            assert row["cos_to_witness"] >= np.float32(np.cos(np.deg2rad(1)))


def test_cluster_protected_rows_stay_in_a_group_without_pairs(tmp_path, ray_address):
    [rows] = topical_vectors(3000, DIM)
    rows[500:] = rows[7]
    write_vectors(tmp_path / "v", [rows])
    pairs = paired(tmp_path / "v", tmp_path / "p", ray_address, 0.7)
    (tmp_path / "ids.txt").write_text("600\n601\n\n600\n")
    report = clustered(pairs, tmp_path / "c", protect=str(tmp_path / "ids.txt"))
    made = table_of(tmp_path / "c")
    assert [n for n in range(500, 3000) if made[n]["keep"]] == [600, 601]
    assert {made[n]["witness"] for n in [7, *range(500, 600), *range(602, 3000)]} == {600}
    assert made[600]["reason"] == made[601]["reason"] == "protected"
    order = [600, 601, *(n for n in range(500) if n != 7)]
    kept, witness = sequential(rows, order, 0.7)
    assert {n for n in order if made[n]["keep"]} == kept | {601}
    assert report.summaries[0].protected_pairs == 1
    assert report.summaries[0].protected_pairs_shown == ((600, 601),)
    (tmp_path / "bad.txt").write_text("4000\n")
    with pytest.raises(ValueError, match="4000"):
        clustered(pairs, tmp_path / "c", protect=str(tmp_path / "bad.txt"))
    (tmp_path / "bad.txt").write_text("seven\n")
    with pytest.raises(ValueError, match="int64"):
        clustered(pairs, tmp_path / "c", protect=str(tmp_path / "bad.txt"))


def test_cluster_update_keeps_what_was_kept_and_lists_changes(tmp_path, ray_address):
    rows = near_rows(300)
    order = np.random.default_rng(0).permutation(300)
    first, last = rows[order[:200]], rows[order[200:]]
    write_vectors(tmp_path / "v", [first])
    paired(tmp_path / "v", tmp_path / "p", ray_address, 0.85)
    clustered(tmp_path / "p", tmp_path / "c", keep="highest:row")
    before = table_of(tmp_path / "c")
    write_vectors(tmp_path / "v", [first, last])
    paired(tmp_path / "v", tmp_path / "p", ray_address, 0.85)
    options = {"keep": "highest:row", "compare_fresh": True}
    report = clustered(tmp_path / "p", tmp_path / "c", **options)
    after = table_of(tmp_path / "c")
    for n, row in before.items():
        if row["keep"]:
            assert after[n]["keep"] and after[n]["reason"] == "kept before"
    both = rows[order]
    was_kept = [n for n, row in before.items() if row["keep"]]
    priority = sorted(was_kept, reverse=True) + sorted(
        set(range(300)) - set(was_kept), reverse=True
    )
    kept, witness = sequential(both, priority, 0.85)
    assert {n for n, row in after.items() if row["keep"]} == kept
    changed = {n for n, row in before.items() if row["canonical"] != after[n]["canonical"]}
    assert {row["id"] for row in changes_of(tmp_path / "c")} == changed
    fresh, _ = sequential(both, sorted(range(300), reverse=True), 0.85)
    assert report.summaries[0].against_fresh == {
        "kept": len(kept),
        "kept_fresh": len(fresh),
        "decided_otherwise": len(kept ^ fresh),
    }
    assert not clustered(tmp_path / "p", tmp_path / "c", **options).is_new
    # Rows that are gone free those they had removed.
    write_vectors(tmp_path / "v", [last])
    paired(tmp_path / "v", tmp_path / "p", ray_address, 0.85)
    clustered(tmp_path / "p", tmp_path / "c", **options)
    assert "gone" in {row["change"] for row in changes_of(tmp_path / "c")}


def test_cluster_bad_input_is_refused_before_anything_is_written(
    rows, pairs, tmp_path, ray_address
):
    with pytest.raises(ValueError, match=r"0\.85"):
        clustered(pairs, tmp_path / "c", thresholds=(0.5,))
    with pytest.raises(ValueError, match=r"1\.5"):
        clustered(pairs, tmp_path / "c", thresholds=(1.5,))
    with pytest.raises(ValueError, match="--carry date"):
        clustered(pairs, tmp_path / "c", keep="newest:date")
    with pytest.raises(UnknownKeepRule):
        clustered(pairs, tmp_path / "c", keep="nicest")
    pq.write_table(pa.table({"id": [1], "other": [2]}), tmp_path / "m.parquet")
    with pytest.raises(ValueError, match="id, other"):
        clustered(pairs, tmp_path / "c", keep="newest:date", metadata=str(tmp_path / "m.parquet"))
    with pytest.raises(ValueError, match="--rerank"):
        clustered(pairs, tmp_path / "c", min_rerank=0.5)
    write_vectors(tmp_path / "v", [rows[:100]])
    near = paired(tmp_path / "v", tmp_path / "near", ray_address, None, top_k=1)
    with pytest.raises(ValueError, match=str(near)):
        clustered(near, tmp_path / "c")
    old = paired(tmp_path / "v", tmp_path / "old", ray_address, 0.9)
    write_vectors(tmp_path / "v", [rows[:120]])
    with pytest.raises(ValueError, match=str(old)):
        clustered(old, tmp_path / "c")
    with pytest.raises(WrongKind):
        clustered(pairs, near)
    assert not (tmp_path / "c").exists()


def test_cluster_keep_rule_reads_metadata_of_another_corpus(rows, pairs, tmp_path):
    with gzip.open(tmp_path / "m.csv.gz", "wt") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "score"])
        writer.writerows([n, (n * 37) % 101] for n in range(380))
    clustered(pairs, tmp_path / "c", keep="highest:score", metadata=str(tmp_path / "m.csv.gz"))
    order = sorted(range(400), key=lambda n: (n >= 380, -((n * 37) % 101) if n < 380 else 0, n))
    kept, _ = sequential(rows, order, 0.85)
    assert {n for n, row in table_of(tmp_path / "c").items() if row["keep"]} == kept


def test_id_index_finds_large_ids_and_leaves_out_missing_ones():
    rows = IdIndex(pa.array([2**60, 2**60 + 1, 2**60 + 2]), np.arange(3), pa.int64())
    asked = pa.array([2**60 + 2, None, 2**60, 7])
    assert rows.lookup(asked).tolist() == [2, -1, 0, -1]
    words = IdIndex(pa.array(["a", "b"], pa.large_string()), np.arange(2), pa.string())
    assert words.lookup(pa.chunked_array([["b"], [None, "c"]])).tolist() == [1, -1, -1]
