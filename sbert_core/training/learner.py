"""The interface between the training loop and a network."""

from abc import ABC, abstractmethod

import numpy as np
from torch import nn

from sbert_core.training.batch import StepBatch, TokenizedExamples


class Learner(nn.Module, ABC):
    """A network that turns a batch into losses: one per row, or one joint loss of all rows.

    is_joint: rows compete with each other, so the loss is computed over the rows of all ranks.
    """

    is_joint: bool

    @property
    @abstractmethod
    def token_embedding(self) -> nn.Embedding:
        """The embedding of token ids, of which a batch touches few rows."""

    @abstractmethod
    def batch(self, examples: TokenizedExamples, rank: int, num_rows: list[int]) -> StepBatch:
        """The input of `forward`: this rank's examples, and the number of rows of every rank."""

    @abstractmethod
    def examples(self, texts: list[list[str]], labels: np.ndarray | None) -> TokenizedExamples:
        """Token ids of rows whose texts are given role by role."""
