"""A cross-encoder as a learner: pairs of texts -> losses.

One output learns a score in 0..1, several learn classes.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert_core.encoder.cross_encoder import CrossEncoder, PairTokens
from sbert_core.training.batch import Examples, StepBatch
from sbert_core.training.learner import Learner


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBatch(StepBatch):
    """Pairs of texts, each one row of tokens."""

    pairs: list[PairTokens]
    labels: np.ndarray

    @property
    def token_ids(self) -> np.ndarray:
        return np.concatenate([pair.ids for pair in self.pairs])


class Crossed(Learner):
    """A cross-encoder and the loss its number of outputs calls for."""

    is_joint = False

    def __init__(self, encoder: CrossEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = encoder.model

    @property
    def words(self) -> nn.Embedding:
        return self.encoder.model.get_input_embeddings()

    def forward(self, batch: PairBatch) -> Tensor:
        """One loss per pair: cross-entropy of its score, or of its class."""
        logits_BC = self.encoder.forward(batch.pairs)
        labels_B = torch.from_numpy(batch.labels).to(logits_BC.device)
        if self.encoder.num_outputs == 1:
            return F.binary_cross_entropy_with_logits(
                logits_BC[:, 0], labels_B.float(), reduction="none"
            )
        return F.cross_entropy(logits_BC, labels_B, reduction="none")

    def batch(self, examples: Examples, rank: int, num_rows: list[int]) -> PairBatch:
        assert examples.labels is not None
        ids, kinds = examples.ids
        pairs = [PairTokens(*pair) for pair in zip(ids, kinds, strict=True)]
        return PairBatch(pairs=pairs, labels=examples.labels, rank=rank, num_rows=num_rows)

    def examples(self, texts: list[list[str]], labels: np.ndarray | None) -> Examples:
        tokens = self.encoder.tokens_of(list(zip(texts[0], texts[1], strict=True)))
        return Examples([[t.ids for t in tokens], [t.kinds for t in tokens]], labels)
