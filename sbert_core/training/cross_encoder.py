"""A cross-encoder as a learner: pairs of texts -> losses.

One output learns a score in 0..1, several learn classes.

Shapes: B pairs, C outputs.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sbert_core.encoder.cross_encoder import CrossEncoder, PairTokens
from sbert_core.training.batch import StepBatch, TokenizedExamples
from sbert_core.training.learner import Learner


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBatch(StepBatch):
    """Pairs of texts, each one row of tokens."""

    pairs: list[PairTokens]
    labels: np.ndarray

    @property
    def token_ids(self) -> np.ndarray:
        """Token ids of all pairs, end to end."""
        return np.concatenate([pair.ids for pair in self.pairs])


class CrossEncoderLearner(Learner):
    """A cross-encoder and its loss: binary for one output, cross-entropy for several."""

    is_joint = False

    def __init__(self, encoder: CrossEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = encoder.model

    @property
    def token_embedding(self) -> nn.Embedding:
        """The embedding of token ids."""
        embedding: nn.Embedding = self.encoder.model.get_input_embeddings()
        return embedding

    def forward(self, batch: PairBatch) -> Tensor:
        """One loss per pair: cross-entropy of its score, or of its class."""
        logits_BC = self.encoder.forward(batch.pairs)
        labels_B = torch.from_numpy(batch.labels).to(logits_BC.device)
        if self.encoder.num_outputs == 1:
            return F.binary_cross_entropy_with_logits(
                logits_BC[:, 0], labels_B.float(), reduction="none"
            )
        return F.cross_entropy(logits_BC, labels_B, reduction="none")

    def batch(self, examples: TokenizedExamples, rank: int, num_rows: list[int]) -> PairBatch:
        """Pairs of this rank; their two "roles" are token ids and the text each belongs to."""
        assert examples.labels is not None
        ids, type_ids = examples.ids
        pairs = [PairTokens(*pair) for pair in zip(ids, type_ids, strict=True)]
        return PairBatch(pairs=pairs, labels=examples.labels, rank=rank, num_rows=num_rows)

    def examples(self, texts: list[list[str]], labels: np.ndarray | None) -> TokenizedExamples:
        """Token ids and type ids of the pairs."""
        tokens = self.encoder.tokenize(list(zip(texts[0], texts[1], strict=True)))
        return TokenizedExamples([[t.ids for t in tokens], [t.type_ids for t in tokens]], labels)
