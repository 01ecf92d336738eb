"""Every number of an evaluation against scipy, scikit-learn or a case worked by hand."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from sbert_core.choices import Aggregate
from sbert_core.evaluation.baselines import TfIdf, WordAverage
from sbert_core.evaluation.clustering import group_scores
from sbert_core.evaluation.correlation import aggregate_subsets, pearson, spearman
from sbert_core.evaluation.duplicates import duplicate_scores, single_link_groups, threshold_scores
from sbert_core.evaluation.facets import facet_scores
from sbert_core.evaluation.pair_classification import pair_scores, triplet_accuracy
from sbert_core.evaluation.retrieval import retrieval_scores
from sbert_core.evaluation.similarity import SIMILARITIES
from sbert_core.evaluation.transfer import split_accuracy, ten_fold_accuracy

RNG = np.random.default_rng(0)


def test_similarities_against_scikit_learn():
    a, b = RNG.normal(size=(2, 20, 7)).astype(np.float32)
    theirs = {
        "cosine": 1 - metrics.pairwise.paired_cosine_distances(a, b),
        "euclidean": -metrics.pairwise.paired_euclidean_distances(a, b),
        "manhattan": -metrics.pairwise.paired_manhattan_distances(a, b),
        "dot": (a * b).sum(1),
    }
    assert set(theirs) == set(SIMILARITIES)
    for name, measured in SIMILARITIES.items():
        np.testing.assert_allclose(measured(a, b), theirs[name], rtol=1e-5, atol=1e-6)


def test_correlations_with_ties_against_scipy():
    x, y = RNG.integers(0, 9, 200).astype(float), RNG.integers(0, 5, 200).astype(float)
    assert spearman(x, y) == pytest.approx(100 * stats.spearmanr(x, y).statistic)
    assert pearson(x, y) == pytest.approx(100 * stats.pearsonr(x, y).statistic)
    assert spearman(x, np.ones(200)) == 0


def test_subsets_are_scored_together_averaged_or_weighted():
    x, y = RNG.normal(size=(2, 30))
    subset = np.array(["a"] * 10 + ["b"] * 20)
    a, b = spearman(x[:10], y[:10]), spearman(x[10:], y[10:])
    expected = {"all": spearman(x, y), "mean": (a + b) / 2, "wmean": (10 * a + 20 * b) / 30}
    for how, value in expected.items():
        assert aggregate_subsets(spearman, x, y, subset, Aggregate(how)) == pytest.approx(value)
    assert aggregate_subsets(spearman, x, y, None, Aggregate.MEAN) == pytest.approx(expected["all"])


@pytest.mark.parametrize("seed", range(5))
def test_pair_decisions_against_every_threshold(seed):
    rng = np.random.default_rng(seed)
    similarity = rng.integers(0, 12, 80) / 12
    truth = rng.random(80) < similarity
    found = pair_scores(similarity, truth)
    cuts = [*np.unique(similarity), 2.0]
    accuracy = max(metrics.accuracy_score(truth, similarity >= cut) for cut in cuts)
    f1 = max(metrics.f1_score(truth, similarity >= cut, zero_division=0) for cut in cuts)
    assert found.accuracy == pytest.approx(100 * accuracy)
    assert found.f1 == pytest.approx(100 * f1)
    at = similarity >= found.accuracy_threshold
    assert metrics.accuracy_score(truth, at) == pytest.approx(accuracy)
    assert metrics.f1_score(truth, similarity >= found.f1_threshold) == pytest.approx(f1)
    theirs = metrics.average_precision_score(truth, similarity)
    assert found.average_precision == pytest.approx(100 * theirs)


def test_triplets_count_strict_wins():
    assert triplet_accuracy(np.array([3.0, 1, 2]), np.array([2.0, 1, 5])) == pytest.approx(100 / 3)


def test_retrieval_worked_by_hand():
    # Query 1 has answers 4 and 7, at places 2 and 4. The answer of query 2 is not found.
    found = retrieval_scores([[1, 4, 2, 7, 3], [1, 2]], [{4: 1.0, 7: 1.0}, {9: 1.0}])
    dcg = 1 / np.log2(3) + 1 / np.log2(5)
    ideal = 1 / np.log2(2) + 1 / np.log2(3)
    assert found["ndcg@10"] == pytest.approx(100 * dcg / ideal / 2)
    assert found["mrr@10"] == pytest.approx(100 * 0.5 / 2)
    assert found["recall@1"] == 0
    assert found["recall@10"] == pytest.approx(50)


def test_ndcg_against_scikit_learn():
    gains = RNG.integers(0, 4, (6, 15)).astype(float)
    gains[:, 0] = 1
    scores = RNG.random((6, 15))
    ranked = np.argsort(-scores, axis=1)
    relevant = [{i: g for i, g in enumerate(row) if g > 0} for row in gains]
    theirs = metrics.ndcg_score(gains, scores, k=10)
    assert retrieval_scores(ranked.tolist(), relevant)["ndcg@10"] == pytest.approx(100 * theirs)


def test_groups_against_scikit_learn():
    found, truth = RNG.integers(0, 8, 120), RNG.integers(0, 6, 120)
    scores = group_scores(found, truth)
    (_, false), (missed, hits) = metrics.cluster.pair_confusion_matrix(truth, found)
    assert scores.precision == pytest.approx(100 * hits / (hits + false))
    assert scores.recall == pytest.approx(100 * hits / (hits + missed))
    assert scores.f1 == pytest.approx(100 * 2 * hits / (2 * hits + false + missed))
    assert scores.rand == pytest.approx(100 * metrics.adjusted_rand_score(truth, found))
    assert group_scores(truth, truth).rand == 100


def test_duplicates_over_thresholds_against_all_pairs():
    centres = RNG.normal(size=(12, 8))
    group = np.repeat(np.arange(12), 5)
    vectors = centres[group] + 0.2 * RNG.normal(size=(60, 8))
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    cos = unit @ unit.T
    a, b = np.triu_indices(60, 1)
    same = group[a] == group[b]
    for scores in threshold_scores(unit, group)[::20]:
        # Cosines are counted in bins of 0.01: their edges are the thresholds.
        called = np.floor((cos[a, b] + 1) * 100) >= round((scores.threshold + 1) * 100)
        hits = (called & same).sum()
        assert scores.precision == pytest.approx(100 * hits / called.sum() if called.any() else 100)
        assert scores.recall == pytest.approx(100 * hits / same.sum())
    scores = duplicate_scores(vectors, group)
    best, curve, groups = scores.best, scores.curve, scores.groups
    assert best.f1 == max(scores.f1 for scores in curve)
    assert groups == group_scores(single_link_groups(unit, best.threshold), group)
    assert groups.rand > 50


def test_facets_are_means_over_folds_and_topics():
    similarity, score = RNG.normal(size=(2, 40))
    topic = np.repeat(["x", "y"], 20)
    found = facet_scores(similarity, score, topic)
    by_topic = [spearman(similarity[:20], score[:20]), spearman(similarity[20:], score[20:])]
    assert found["spearman_cross_topic"] == pytest.approx(np.mean(by_topic))
    assert set(found) == {f"{m}_{p}" for m in ("pearson", "spearman")
                          for p in ("10_fold", "cross_topic")}  # fmt: skip


@pytest.mark.slow
def test_transfer_finds_what_is_there_and_nothing_in_noise():
    label = np.repeat([0, 1, 2], 60)
    signal = np.eye(3)[label] + 0.3 * RNG.normal(size=(180, 3))
    noise = RNG.normal(size=(180, 3))
    assert ten_fold_accuracy(signal, label) > 90
    assert ten_fold_accuracy(noise, label) < 50
    order = RNG.permutation(180)
    train, test = order[:120], order[120:]
    assert split_accuracy(signal[train], label[train], signal[test], label[test], seed=0) > 90


def test_word_averages_and_tf_idf(tmp_path):
    (tmp_path / "glove.txt").write_text("cat 1 0\ndog 0 1\n")
    average = WordAverage.load(tmp_path / "glove.txt")
    vectors = average.encode(["Cat dog, cat", "nothing known"])
    np.testing.assert_allclose(vectors, [[2 / 3, 1 / 3], [0, 0]], rtol=1e-6)
    weights = TfIdf().encode(["cat dog", "cat dog", "fish"])
    np.testing.assert_allclose(weights[0], weights[1])
    assert weights[0] @ weights[2] == 0
    (tmp_path / "bad.txt").write_text("cat 1 0\ndog 0\n")
    with pytest.raises(ValueError, match="line 2"):
        WordAverage.load(tmp_path / "bad.txt")
