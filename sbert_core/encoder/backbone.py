"""Batch of token ids -> token states, in the flat layout where the model allows.

In:  a Hugging Face encoder and a Batch.
Out: for each group of equal-length texts, a block of states without padding.
Gives up: in the padded layout, padding is computed and thrown away, and the last bits of a vector
          depend on the other texts of its batch.

Shapes: B texts, L tokens, D dimensions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from sbert_core.choices import Pooling, Precision
from sbert_core.encoder.batching import Batch, BatchLayout, Group, padded_batches
from sbert_core.encoder.families import FAMILIES
from sbert_core.encoder.flat_model import FlatBackbone
from sbert_core.encoder.fused_linear import FLOAT32, LinearFormat, pack_linears
from sbert_core.encoder.interface_model import INTERFACE_FAMILIES, InterfaceBackbone
from sbert_core.encoder.pooling import pool
from sbert_core.encoder.static_model import StaticBackbone, StaticModel
from sbert_core.encoder.transfer import upload

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

    def batches(self, lengths: np.ndarray, budget: int, num_parallel: int) -> list[np.ndarray]:
        """Text numbers of batches of at most `budget` tokens, `num_parallel` of them at once."""
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

    def batches(self, lengths: np.ndarray, budget: int, num_parallel: int) -> list[np.ndarray]:
        """Text numbers of batches of at most `budget` tokens, padding included.

        The same for any `num_parallel`: the last bits of a vector depend on its batch.
        """
        return padded_batches(lengths, budget)

    def blocks(self, batch: Batch) -> Iterator[tuple[Group, Tensor]]:
        """States (N, L, D) of each group, its padding cut off."""
        is_real_BL = np.arange(batch.lengths.max()) < batch.lengths[:, None]
        ids_BL = np.full(is_real_BL.shape, self.pad_id, dtype=np.int64)
        ids_BL[is_real_BL] = batch.ids_T
        states_BLD = self.model(
            input_ids=upload(ids_BL, self.model.device),
            attention_mask=upload(is_real_BL.astype(np.int64), self.model.device),
            return_dict=True,
        ).last_hidden_state
        for group in batch.groups:
            yield group, states_BLD[group.rows, : group.length]


def pool_batch(
    backbone: Backbone, batch: Batch, modes: tuple[Pooling, ...], num_skipped: int
) -> Tensor:
    """One row per text of the batch: its states, pooled."""
    if isinstance(backbone, StaticBackbone):
        return backbone.mean_vectors(batch)
    return torch.cat([pool(states, modes, num_skipped) for _, states in backbone.blocks(batch)])


def is_reentrant(model: PreTrainedModel) -> bool:
    """May several threads run the model's forward at once?"""
    return model.config.model_type in REENTRANT and not _depends_on_longest(model)


def is_of_flat_family(model: PreTrainedModel) -> bool:
    """Is this a model that `choose_backbone` tries the flat layout with?"""
    return model.config.model_type in {*FAMILIES, *INTERFACE_FAMILIES}


def choose_backbone(
    model: PreTrainedModel,
    pad_id: int,
    max_length: int,
    number_format: LinearFormat = FLOAT32,
) -> Backbone:
    """The flat backbone if this model computes the same states with it, else the padded one.

    The states are compared in float32; then linear layers get the number format.
    """
    if isinstance(model, StaticModel):
        return StaticBackbone(model)
    padded = PaddedBackbone(model, pad_id)
    make_flat = _find_flat(model, pad_id)
    is_exact = number_format.precision is Precision.FLOAT32
    if make_flat is not None:
        flat = make_flat(FLOAT32)
        if _have_equal_states(flat, padded, model.config.vocab_size, max_length):
            return flat if is_exact else make_flat(number_format)
    if not is_exact:
        pack_linears(model, number_format)
    return padded


def _find_flat(
    model: PreTrainedModel, pad_id: int
) -> Callable[[LinearFormat], FlatBackbone | InterfaceBackbone] | None:
    """Makes the flat backbone of the model's family in a number format; None if it has none."""
    if _depends_on_longest(model):
        return None
    names = FAMILIES.get(model.config.model_type)
    if names is not None and not getattr(model.config, "is_decoder", False):
        return lambda number_format: FlatBackbone(model, names, pad_id, number_format)
    if model.config.model_type in INTERFACE_FAMILIES:
        return lambda number_format: InterfaceBackbone(model, pad_id, number_format)
    return None


def _depends_on_longest(model: PreTrainedModel) -> bool:
    """Does the longest text of a batch decide how the positions of all its texts are encoded?

    longrope takes other frequencies for all of them, and keeps those in the model: vectors would
    depend on the batch, and on what other threads run.
    """
    kinds: dict[str, Any] = getattr(model.config, "rope_parameters", None) or {}
    each = [kinds, *(own for own in kinds.values() if isinstance(own, dict))]  # or one per layer
    return any(own.get("rope_type") == "longrope" for own in each)


@torch.inference_mode()
def _have_equal_states(
    flat: FlatBackbone | InterfaceBackbone,
    padded: PaddedBackbone,
    vocab_size: int,
    max_length: int,
) -> bool:
    """Are the states of made-up texts equal, one of them with a padding id inside?

    Catches a configuration the flat layers do not support (an odd position scheme, say) at the
    price of two tiny forward passes. A model with a window of attention gets a longer text.
    """
    window = getattr(flat.model.config, "sliding_window", None) or 0
    lengths = [min(length, max_length) for length in (2 * window + 9, 5, 5)]
    ids = [(np.arange(length) + 1) * 7919 % vocab_size for length in lengths]
    ids[0][1] = flat.pad_id
    batch = Batch.of(np.arange(len(ids)), ids)
    pairs = zip(flat.blocks(batch), padded.blocks(batch), strict=True)
    tolerance = 1e-4 if flat.model.dtype == torch.float32 else 0.1
    return all(
        torch.allclose(left, right, rtol=tolerance, atol=tolerance)
        for (_, left), (_, right) in pairs
    )
