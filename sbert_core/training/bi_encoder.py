"""The siamese and triplet networks of the paper: one encoder over all texts of a row, then a loss.

Shapes: B rows, D dimensions.
"""

import numpy as np
import torch
from torch import Tensor, nn

from sbert_core.encoder import Encoder
from sbert_core.training.batch import Examples, TextBatch, token_keys
from sbert_core.training.distributed import World
from sbert_core.training.learner import Learner
from sbert_core.training.losses import Objective


class Siamese(Learner):
    """An encoder and an objective: batches -> losses.

    head: the classifier of the softmax objective; it is trained with the encoder.
    """

    def __init__(
        self, encoder: Encoder, objective: Objective, head: nn.Module | None, world: World
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.objective = objective
        self.world = world
        self.network = encoder.network
        self.head = head
        self.is_joint = objective.is_joint
        for name, weight in self.network.named_parameters():
            weight.requires_grad_("model.pooler." not in f"model.{name}")  # makes no vector

    @property
    def words(self) -> nn.Embedding:
        return self.encoder.word_embedding

    def forward(self, batch: TextBatch) -> Tensor:
        """One loss per own row, or the joint loss of the rows of all ranks."""
        vectors = self.encoder.forward(batch.texts)
        in_order = vectors[torch.from_numpy(batch.place).to(vectors.device)]
        roles = list(in_order.chunk(batch.num_roles))
        labels = None
        if batch.labels is not None:
            labels = torch.from_numpy(batch.labels).to(vectors.device)
        if not self.is_joint:
            return self.objective(roles, labels, self.head)
        own = slice(batch.num_own)
        everyone = [self.world.all_rows(role[own], batch.num_rows) for role in roles]
        if labels is not None:
            labels = self.world.all_rows(labels[own], batch.num_rows)
        # A rank without rows of its own still takes part in the backward pass.
        return self.objective(everyone, labels, self.head) + 0.0 * vectors.sum()

    def batch(self, examples: Examples, rank: int, num_rows: list[int]) -> TextBatch:
        return TextBatch.of(examples, rank, num_rows)

    def examples(self, texts: list[list[str]], labels: np.ndarray | None) -> Examples:
        """Token ids of rows, given role by role; for ranking, what tells equal texts too."""
        ids = [[t.ids for t in self.encoder.tokens_of(role)] for role in texts]
        return Examples(ids, token_keys(ids) if self.objective.name == "ranking" else labels)
