"""The trial of batch invariance finds defects that few texts or few batches show."""

import numpy as np
import pytest

from sbert_core.encoder.batching import flat_batches
from sbert_core.encoder.probe import is_batch_invariant, processor_digest
from sbert_core.encoder.transfer import FinishedDownload

VOCABULARY, LONGEST = 30_000, 256


class FakeEncoder:
    """Vectors that follow from a text alone, but for those that `is_defective` picks.

    is_defective: token ids of a text, and the number of texts and tokens of its batch.
    """

    dim = 4
    token_budget = 1024
    num_parallel = 1

    def __init__(self, is_defective=lambda ids, num_texts, num_tokens: False) -> None:
        self.is_defective = is_defective

    def plan_batches(self, lengths):
        return flat_batches(lengths, self.token_budget)

    def launch_batch(self, batch, normalize, num_skipped):
        ids = np.split(batch.ids_T, np.cumsum(batch.lengths)[:-1])
        vectors = np.array([[x.sum(), x[0], x[-1], len(x)] for x in ids], np.float32)
        size = (len(ids), len(batch.ids_T))
        is_off = np.array([self.is_defective(text, *size) for text in ids])
        vectors[is_off] = np.nextafter(vectors[is_off], np.inf)  # one bit
        return FinishedDownload(vectors)


def test_encoder_without_a_defect_passes():
    assert is_batch_invariant(FakeEncoder(), VOCABULARY, LONGEST)


@pytest.mark.parametrize("number", range(20))
def test_defect_of_one_text_in_fifty_is_found(number):
    """Other bits in large batches, for one of fifty texts: whichever fiftieth it is."""

    def is_defective(ids, num_texts, num_tokens):
        return (int(ids.sum()) + number) % 50 == 0 and num_texts > 30

    assert not is_batch_invariant(FakeEncoder(is_defective), VOCABULARY, LONGEST)


@pytest.mark.parametrize(
    "is_defective",
    [
        lambda ids, num_texts, num_tokens: len(ids) > 200 and num_texts > 1,
        lambda ids, num_texts, num_tokens: len(ids) == 2 and num_tokens > 500,
        lambda ids, num_texts, num_tokens: num_texts == 1,
        lambda ids, num_texts, num_tokens: num_tokens % 7 == 0,
    ],
    ids=["long texts", "short texts", "texts alone", "some batches"],
)
def test_defect_of_some_lengths_or_batches_is_found(is_defective):
    assert not is_batch_invariant(FakeEncoder(is_defective), VOCABULARY, LONGEST)


@pytest.mark.parametrize("longest", [1, 3, 8])
def test_trial_keeps_to_the_length_of_the_model(longest):
    encoder = FakeEncoder(lambda ids, num_texts, num_tokens: len(ids) > longest)
    assert is_batch_invariant(encoder, 5, longest)


@pytest.mark.parametrize("longest", [1, 8, 256])
def test_processors_are_told_apart_by_one_bit_of_one_text(longest):
    same = [processor_digest(FakeEncoder(), VOCABULARY, longest) for _ in range(2)]
    other = FakeEncoder(lambda ids, num_texts, num_tokens: len(ids) == min(longest, 256))
    assert same[0] == same[1] != processor_digest(other, VOCABULARY, longest)
