"""Scores of models, called as plain functions: every task with vectors that are known."""

import numpy as np
import pytest

from sbert_core.choices import Aggregate, Precision
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.evaluation.benchmarks import (
    Benchmark,
    ClusterBenchmark,
    FacetBenchmark,
    NliBenchmark,
    PairBenchmark,
    RetrievalBenchmark,
    StsBenchmark,
    TransferBenchmark,
    TripletBenchmark,
)
from sbert_core.training.losses import SoftmaxHead
from workers.evaluate import (
    ModelKind,
    ModelSource,
    PairScorer,
    RawEncoder,
    load_embedder,
    score_benchmark,
    score_model,
)


class Angles:
    """Texts are angles in degrees: their vectors are known."""

    def encode(self, texts):
        radians = np.deg2rad([float(text) for text in texts])
        return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


STS = StsBenchmark(
    data="x",
    a=["0", "0", "0"],
    b=["10", "40", "80"],
    similarity=np.array([5.0, 3.0, 1.0]),
    subset=None,
    aggregate=Aggregate.ALL,
)


def scores_of(benchmark, head=None):
    return {s.measure: s for s in score_benchmark(benchmark, Angles(), head)}


def test_sts_score_is_the_correlation_of_similarities():
    scores = scores_of(STS)
    assert scores["spearman_cosine"].value == pytest.approx(100)
    assert [s.measure for s in scores.values() if s.is_main] == ["spearman_cosine"]
    assert len(scores) == 8
    cos = np.cos(np.deg2rad([10, 40, 80]))
    expected = 100 * np.corrcoef(cos, STS.similarity)[0, 1]
    assert scores["pearson_cosine"].value == pytest.approx(expected)


def test_triplets_count_positives_closer_than_negatives():
    benchmark = TripletBenchmark(
        data="x", anchor=["0", "0"], positive=["10", "50"], negative=["20", "30"]
    )
    assert scores_of(benchmark)["accuracy_cosine"].value == 50


def test_pairs_are_separated_by_a_threshold():
    benchmark = PairBenchmark(
        data="x", a=["0"] * 4, b=["5", "10", "60", "80"], is_match=np.array([1, 1, 0, 0], bool)
    )
    scores = scores_of(benchmark)
    assert scores["average_precision"].value == scores["f1"].value == 100
    assert np.cos(np.deg2rad(60)) < scores["f1_threshold"].value < np.cos(np.deg2rad(10))


def test_retrieval_ranks_documents_and_misses_count():
    benchmark = RetrievalBenchmark(
        data="x",
        queries=["0", "90"],
        documents=["1", "50", "91"],
        relevant=[{0: 1.0}, {2: 1.0, -1: 1.0}],
    )
    scores = scores_of(benchmark)
    assert scores["mrr@10"].value == 100
    assert scores["recall@10"].value == 75


def test_clusters_are_found_at_the_best_threshold():
    benchmark = ClusterBenchmark(
        data="x", text=["0", "1", "90", "91"], cluster=np.array(["a", "a", "b", "b"])
    )
    scores = scores_of(benchmark)
    assert scores["pair_f1"].value == scores["rand"].value == 100
    assert "f1@0.95" in scores


def test_facets_average_over_folds_and_topics():
    angles = [str(n) for n in range(40)]
    benchmark = FacetBenchmark(
        data="x",
        a=["0"] * 40,
        b=angles,
        similarity=-np.arange(40.0),
        topic=np.array(["p", "q"] * 20),
    )
    scores = scores_of(benchmark)
    assert scores["spearman_10_fold"].value == pytest.approx(100)
    assert scores["spearman_cross_topic"].value == pytest.approx(100)


@pytest.mark.parametrize("is_pair", [False, True])
def test_transfer_learns_a_class_from_vectors(is_pair):
    texts = [str(10 * (n % 2) * 9 + n) for n in range(40)]
    benchmark = TransferBenchmark(
        data="x",
        a=texts,
        b=["0"] * 40 if is_pair else None,
        label=np.arange(40) % 2,
        is_test=np.arange(40) >= 30,
    )
    assert scores_of(benchmark)["accuracy"].value == 100


def test_nli_needs_a_head_that_has_the_labels(tmp_path):
    benchmark = NliBenchmark(data="x", a=["0", "0"], b=["0", "90"], label=["Same", "other"])
    assert scores_of(benchmark) == {}  # a baseline
    head = SoftmaxHead(2, 2, "|u-v|")
    head.linear.weight.data.copy_(head.linear.weight.new_tensor([[-1.0, -1.0], [1.0, 1.0]]))
    head.linear.bias.data.copy_(head.linear.bias.new_tensor([0.5, -0.5]))
    head.save(tmp_path / "head", ["same", "other"])
    assert scores_of(benchmark, tmp_path / "head")["accuracy"].value == 100
    head.save(tmp_path / "head", ["same", "third"])
    with pytest.raises(ValueError, match="third"):
        scores_of(benchmark, tmp_path / "head")


def test_score_model_scores_all_benchmarks_in_order(bert_folder):
    pairs = PairBenchmark(data="y", a=STS.a, b=STS.b, is_match=np.array([True, False, False]))
    scores = score_model(ModelSource(ModelKind.CLS, str(bert_folder)), [STS, pairs])
    assert [(s.task, s.data) for s in scores if s.is_main] == [("sts", "x"), ("pairs", "y")]


def test_models_are_loaded_by_kind(tmp_path, bert_folder, pair_folder):
    assert isinstance(load_embedder(ModelSource(ModelKind.MODEL, str(bert_folder))), RawEncoder)
    CrossEncoder.load(pair_folder("bert"), num_outputs=1).save(tmp_path / "cross")
    scorer = load_embedder(ModelSource(ModelKind.MODEL, str(tmp_path / "cross")))
    assert isinstance(scorer, PairScorer)
    assert len([*score_benchmark(STS, scorer, None)]) == 2
    with pytest.raises(ValueError, match="no vectors"):
        scorer.encode(["a"])
    CrossEncoder.load(pair_folder("bert"), num_outputs=3).save(tmp_path / "classes")
    with pytest.raises(ValueError, match="3 classes"):
        load_embedder(ModelSource(ModelKind.MODEL, str(tmp_path / "classes")))
    (tmp_path / "glove.txt").write_text("the 1 0\n")
    words = load_embedder(ModelSource(ModelKind.GLOVE, str(tmp_path / "glove.txt")))
    assert words.encode(["the the"]).tolist() == [[1, 0]]
    assert load_embedder(ModelSource(ModelKind.TFIDF, "")).encode(["a word", "word"]).shape[0] == 2


def test_benchmark_without_a_scorer_is_refused():
    with pytest.raises(TypeError):
        score_benchmark(Benchmark(data="x"), Angles(), None)


def test_text_without_a_vector_is_quoted_with_the_reason(bert_folder):
    embedder = load_embedder(ModelSource(ModelKind.MODEL, str(bert_folder)))
    with pytest.raises(ValueError, match=r"1 of 3 texts have no vector, .*u200b.*no tokens.*; rem"):
        embedder.encode(["the word", "\u200b", "of"])
    with pytest.raises(ValueError, match="1 of 2 texts have no vector"):
        embedder.encode_search(["the word"], ["\u200b", "of"])


@pytest.mark.parametrize("precision", [Precision.BFLOAT16, Precision.INT8])
def test_precision_of_a_cross_encoder_is_refused_rather_than_ignored(
    precision, pair_folder, tmp_path
):
    CrossEncoder.load(pair_folder("bert"), num_outputs=1).save(tmp_path)
    with pytest.raises(ValueError, match=f"cross-encoder.*{precision}; evaluate it without"):
        load_embedder(ModelSource(ModelKind.MODEL, str(tmp_path), precision))
    auto = ModelSource(ModelKind.MODEL, str(tmp_path), Precision.AUTO)
    assert isinstance(load_embedder(auto), PairScorer)
