"""What the loop needs of a network."""

from abc import ABC, abstractmethod

import numpy as np
from torch import nn

from sbert_core.training.batch import Examples, StepBatch


class Learner(nn.Module, ABC):
    """A network that turns a batch into losses: one per row, or one for all ranks' rows."""

    is_joint: bool

    @property
    @abstractmethod
    def words(self) -> nn.Embedding:
        """The embedding of tokens, of which a batch touches few rows."""

    @abstractmethod
    def batch(self, examples: Examples, rank: int, num_rows: list[int]) -> StepBatch:
        """What `forward` takes."""

    @abstractmethod
    def examples(self, texts: list[list[str]], labels: np.ndarray | None) -> Examples:
        """Token ids of rows, given role by role."""
