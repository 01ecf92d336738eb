"""Batch of token ids -> token states, in the flat layout where the model allows.

In:  a Hugging Face encoder and a Batch.
Out: for each group of equal-length texts, a block of states without padding.
Gives up: in the padded layout, padding is computed and thrown away, and the last bits of a vector
          depend on the other texts of its batch.

Shapes: B texts, L tokens, D dimensions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from sbert_core.encoder.batching import Batch, BatchLayout, Group, padded_batches
from sbert_core.encoder.families import FAMILIES
from sbert_core.encoder.flat_model import FlatBackbone

# Families whose forward keeps no state in the model, so that several threads may run it at once.
# Of others it is unknown (BigBird used to swap its attention layers there).
REENTRANT = {*FAMILIES, "albert", "deberta-v2", "modernbert"}


class Backbone(Protocol):
    """Turns a batch of token ids into blocks of token states."""

    layout: ClassVar[BatchLayout]

    @property
    def is_reentrant(self) -> bool:
        """May several threads compute blocks at once?"""
        ...

    def batches(self, lengths: np.ndarray, budget: int) -> list[np.ndarray]:
        """Text numbers of each batch of at most `budget` tokens."""
        ...

    def blocks(self, batch: Batch) -> Iterator[tuple[Group, Tensor]]:
        """States (N, L, D) of each group of equal-length texts."""
        ...


@dataclass(frozen=True, slots=True)
class PaddedBackbone:
    """Any Hugging Face encoder, texts padded to the longest of their batch."""

    layout: ClassVar[BatchLayout] = BatchLayout.PADDED
    model: PreTrainedModel
    pad_id: int

    @property
    def is_reentrant(self) -> bool:
        """May several threads compute blocks at once?"""
        return is_reentrant(self.model)

    def batches(self, lengths: np.ndarray, budget: int) -> list[np.ndarray]:
        """Text numbers of each batch of at most `budget` tokens, padding included."""
        return padded_batches(lengths, budget)

    def blocks(self, batch: Batch) -> Iterator[tuple[Group, Tensor]]:
        """States (N, L, D) of each group, its padding cut off."""
        is_real_BL = np.arange(batch.lengths.max()) < batch.lengths[:, None]
        ids_BL = np.full(is_real_BL.shape, self.pad_id, dtype=np.int64)
        ids_BL[is_real_BL] = batch.ids_T
        states_BLD = self.model(
            input_ids=torch.from_numpy(ids_BL).to(self.model.device),
            attention_mask=torch.from_numpy(is_real_BL.astype(np.int64)).to(self.model.device),
            return_dict=True,
        ).last_hidden_state
        for group in batch.groups:
            yield group, states_BLD[group.rows, : group.length]


def is_reentrant(model: PreTrainedModel) -> bool:
    """May several threads run the model's forward at once?"""
    return model.config.model_type in REENTRANT


def choose_backbone(model: PreTrainedModel, pad_id: int, max_length: int) -> Backbone:
    """The flat backbone if this model computes the same states with it, else the padded one."""
    padded = PaddedBackbone(model, pad_id)
    names = FAMILIES.get(model.config.model_type)
    if names is None or getattr(model.config, "is_decoder", False):
        return padded
    flat = FlatBackbone(model, names, pad_id)
    vocab_size = model.config.vocab_size
    return flat if _have_equal_states(flat, padded, vocab_size, max_length) else padded


@torch.inference_mode()
def _have_equal_states(
    flat: FlatBackbone, padded: PaddedBackbone, vocab_size: int, max_length: int
) -> bool:
    """Are the states of three made-up texts equal, one of them with a padding id inside?

    Catches a configuration the flat layers do not support (an odd position scheme, say) at the
    price of two tiny forward passes.
    """
    lengths = [min(length, max_length) for length in (9, 5, 5)]
    ids = [(np.arange(length) + 1) * 7919 % vocab_size for length in lengths]
    ids[0][1] = flat.pad_id
    batch = Batch.of(np.arange(len(ids)), ids)
    pairs = zip(flat.blocks(batch), padded.blocks(batch), strict=True)
    tolerance = 1e-4 if flat.model.dtype == torch.float32 else 0.1
    return all(
        torch.allclose(left, right, rtol=tolerance, atol=tolerance)
        for (_, left), (_, right) in pairs
    )
