"""What the loop needs of a network and of its batches."""

from typing import Protocol

import numpy as np
from torch import nn

from sbert_core.training.batch import Examples


class StepBatch(Protocol):
    """One rank's rows of one step; `num_rows` of every rank."""

    @property
    def num_rows(self) -> list[int]: ...

    @property
    def num_own(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...

    @property
    def token_ids(self) -> np.ndarray: ...


class Learner(nn.Module):
    """A network that turns a batch into losses: one per row, or one for all ranks' rows."""

    is_joint: bool

    @property
    def words(self) -> nn.Embedding:
        """The embedding of tokens, of which a batch touches few rows."""
        raise NotImplementedError

    def batch(self, examples: Examples, rank: int, num_rows: list[int]) -> StepBatch:
        """What `forward` takes."""
        raise NotImplementedError

    def examples(self, texts: list[list[str]], labels: np.ndarray | None) -> Examples:
        """Token ids of rows, given role by role."""
        raise NotImplementedError
