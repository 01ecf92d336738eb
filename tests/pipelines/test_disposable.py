"""Whom the deaths of an encoder's process are held against."""

import os
from dataclasses import dataclass

import numpy as np
import pytest

from sbert_core.encoder.documents import Documents
from workers.disposable import DEADLY, without_deadly

pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Mortal:
    """Stands for an encoder; its process is lost over texts with this in them."""

    dies_of: str

    def load(self) -> None:
        return None

    def encode(self, encoder: None, texts: list) -> Documents:
        if any(self.dies_of in text for text in texts):
            os._exit(1)
        numbers = np.arange(len(texts))
        lengths = np.array([len(text) for text in texts])
        return Documents(
            vectors=lengths[:, None].astype(np.float32),
            document=numbers,
            chunk=0 * numbers,
            start_char=0 * numbers,
            end_char=lengths,
            num_tokens=lengths,
            num_lost_tokens=0 * numbers,
            reasons={},
            num_unknown_tokens=0,
            distinct_lengths=lengths,
        )


def test_only_the_deadly_are_left_out():
    documents = without_deadly(Mortal("x"), ["one", "x", "three"])
    assert documents.reasons == {1: DEADLY}
    assert documents.document.tolist() == [0, 2]
    assert documents.vectors[:, 0].tolist() == [3, 5]


def test_no_text_is_blamed_where_all_kill():
    with pytest.raises(OSError, match="dies of any text; look for a lack of memory"):
        without_deadly(Mortal(""), ["one"])
