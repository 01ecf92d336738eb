"""What training starts from."""

import numpy as np
import pytest

from sbert_core.encoder import Encoder
from sbert_core.training.base_model import starting_parts

TEXTS = ["the word of the time", "he was with a dog"]


def vectors(folder, pooling=None, dense=None, **options):
    parts = starting_parts(folder, pooling, dense, 0, **options)
    return Encoder(parts, threads=1).encode(TEXTS, normalize=False)


def test_the_base_as_it_is(minilm_folder):
    own = Encoder.load(minilm_folder, threads=1).encode(TEXTS, normalize=False)
    np.testing.assert_array_equal(vectors(minilm_folder), own)


def test_lengths_are_kept_where_a_head_learns_from_them(minilm_folder):
    unit, free = vectors(minilm_folder), vectors(minilm_folder, with_lengths=True)
    lengths = np.linalg.norm(free, axis=1, keepdims=True)
    assert (np.abs(lengths - 1) > 0.1).all()
    np.testing.assert_allclose(free / lengths, unit, atol=1e-6)


def test_a_projection_comes_before_unit_length(minilm_folder):
    projected = vectors(minilm_folder, dense=8)
    assert projected.shape == (2, 8)
    np.testing.assert_allclose(np.linalg.norm(projected, axis=1), 1, atol=1e-6)


def test_a_projection_stays_with_its_pooling(bert_folder, tmp_path):
    Encoder(starting_parts(bert_folder, None, 8, 0)).save(tmp_path / "projected")
    with pytest.raises(ValueError, match="name the plain encoder as --base"):
        vectors(tmp_path / "projected", pooling="cls")
