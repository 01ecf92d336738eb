"""The siamese and triplet networks of the paper: one encoder over all texts of a row, then a loss.

Shapes: B rows, D dimensions.
"""

import numpy as np
import torch
from torch import Tensor, nn

from sbert_core.choices import ObjectiveName
from sbert_core.encoder.encoder import Encoder
from sbert_core.training.batch import TextBatch, TokenizedExamples, token_keys
from sbert_core.training.distributed import ProcessGroup
from sbert_core.training.learner import Learner
from sbert_core.training.losses import Objective


class BiEncoderLearner(Learner):
    """An encoder and an objective: batches -> losses.

    head: the classifier of the softmax objective; it is trained with the encoder.
    group: the ranks, whose rows a joint objective compares.
    """

    def __init__(
        self, encoder: Encoder, objective: Objective, head: nn.Module | None, group: ProcessGroup
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.objective = objective
        self.group = group
        self.network = encoder.network
        self.head = head
        self.is_joint = objective.is_joint
        for name, weight in self.network.named_parameters():
            # BERT's pooler does not contribute to any vector.
            weight.requires_grad_("model.pooler." not in f"model.{name}")

    @property
    def token_embedding(self) -> nn.Embedding:
        """The embedding of token ids."""
        return self.encoder.token_embedding

    def forward(self, batch: TextBatch) -> Tensor:
        """One loss per own row, or the joint loss of the rows of all ranks."""
        vectors = self.encoder.forward(batch.texts)
        in_order = vectors[torch.from_numpy(batch.position).to(vectors.device)]
        roles = list(in_order.chunk(batch.num_roles))
        labels = None
        if batch.labels is not None:
            labels = torch.from_numpy(batch.labels).to(vectors.device)
        if not self.is_joint:
            return self.objective(roles, labels, self.head)
        own = slice(batch.num_own)
        all_roles = [self.group.gather_rows(role[own], batch.num_rows) for role in roles]
        if labels is not None:
            labels = self.group.gather_rows(labels[own], batch.num_rows)
        # A rank without rows still takes part in the backward pass.
        return self.objective(all_roles, labels, self.head) + 0.0 * vectors.sum()

    def batch(self, examples: TokenizedExamples, rank: int, num_rows: list[int]) -> TextBatch:
        """All texts of all roles in one flat batch."""
        return TextBatch.of(examples, rank, num_rows)

    def examples(self, texts: list[list[str]], labels: np.ndarray | None) -> TokenizedExamples:
        """Token ids of rows; the labels of ranking are keys by which equal texts are found."""
        ids = [self.encoder.tokenize(role).split() for role in texts]
        is_ranking = self.objective.name == ObjectiveName.RANKING
        return TokenizedExamples(ids, token_keys(ids) if is_ranking else labels)
