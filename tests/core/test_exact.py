import numpy as np
import pytest

from sbert_core.neighbours.exact import top_pairs


def brute_force(vectors: np.ndarray, k: int) -> list[tuple[float, int, int]]:
    cos = vectors @ vectors.T
    pairs = [(-cos[a, b], a, b) for a in range(len(cos)) for b in range(a + 1, len(cos))]
    return [(-c, a, b) for c, a, b in sorted(pairs)[:k]]


def unit_vectors(num: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((num, 8)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("k", [1, 7, 500, 100_000])
@pytest.mark.parametrize("block", [5, 64, 2048])
def test_top_pairs_match_brute_force(k, block, monkeypatch):
    monkeypatch.setattr("sbert_core.neighbours.exact.BLOCK_ROWS", block)
    vectors = unit_vectors(60, seed=k)
    pairs, want = top_pairs(vectors, k), brute_force(vectors, k)
    assert [(a, b) for _, a, b in want] == list(zip(pairs.a, pairs.b, strict=True))
    np.testing.assert_allclose(pairs.cos, [cos for cos, _, _ in want], atol=1e-6)


@pytest.mark.parametrize("block", [4, 2048])
def test_top_pairs_ties_go_to_the_smaller_rows(block, monkeypatch):
    monkeypatch.setattr("sbert_core.neighbours.exact.BLOCK_ROWS", block)
    vectors = np.eye(4, dtype=np.float32)[[0, 1, 0, 1, 2, 0, 3]]
    pairs = top_pairs(vectors, 5)
    assert list(zip(pairs.a, pairs.b, strict=True)) == [(0, 2), (0, 5), (1, 3), (2, 5), (0, 1)]


@pytest.mark.parametrize("num", [0, 1])
def test_top_pairs_of_fewer_than_two_vectors_are_none(num):
    assert len(top_pairs(unit_vectors(num, 0), 3).cos) == 0
