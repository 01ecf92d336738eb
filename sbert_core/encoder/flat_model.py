"""Batch of token ids -> token states over one flat row of tokens, no padding.

In:  a Hugging Face encoder of a known family and a Batch.
Out: for each group of equal-length texts, a block of their states.

The layers run here instead of in the model's own forward: MPNet's attention bypasses
transformers' AttentionInterface, and fused products are faster than the unmodified modules (see
fused_linear.py). They use the model's parameters in place, so training changes both alike.

Shapes: T tokens, D dimensions, H heads, N texts of one length L, R relative distances.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sbert_core.choices import Precision
from sbert_core.encoder.attention import FlatTexts, bucketed_attention, flat_attention
from sbert_core.encoder.batch_filler import BatchFiller
from sbert_core.encoder.batching import Batch, BatchLayout, Group, flat_batches
from sbert_core.encoder.bfloat16_attention import bfloat16_attention, text_chunks
from sbert_core.encoder.families import LayerNames
from sbert_core.encoder.fused_linear import (
    FusedFeedForward,
    FusedLinear,
    FusedProjections,
    LinearFormat,
    add_residual,
    dropout_rate,
)
from sbert_core.encoder.transfer import upload

# What the projections of a layer give, and the dropout rate -> the context of each token.
AttentionFunction = Callable[[tuple[Tensor, ...], float], Tensor]


@dataclass(frozen=True, slots=True)
class TransformerLayer:
    """The modules of one layer, whatever its family calls them."""

    projections: FusedProjections  # queries, keys, values
    attention_out: FusedLinear
    attention_norm: nn.LayerNorm
    feed_forward: FusedFeedForward
    norm: nn.LayerNorm
    score_dropout: nn.Dropout
    attention_dropout: nn.Dropout | None

    def __call__(self, x_TD: Tensor, attention: AttentionFunction) -> Tensor:
        """The next layer's input."""
        context_TD = attention(self.projections(x_TD), dropout_rate(self.score_dropout))
        x_TD = self.attention_norm(
            add_residual(self.attention_out, self.attention_dropout, context_TD, x_TD)
        )
        out_TD: Tensor = self.norm(self.feed_forward(x_TD))
        return out_TD


class FlatBackbone:
    """The layers of a known family over one flat row of tokens."""

    layout: ClassVar[BatchLayout] = BatchLayout.FLAT
    is_reentrant = True  # what a batch leaves behind (packed weights, sizes) changes no bit

    def __init__(
        self, model: PreTrainedModel, names: LayerNames, pad_id: int, number_format: LinearFormat
    ) -> None:
        self.model = model
        self.pad_id = pad_id
        self.num_heads = model.config.num_attention_heads
        self.padding_idx = padding_idx(model)
        self._filler = BatchFiller(pad_id)
        # Then projections are one tensor in bfloat16 (see FusedProjections).
        self._is_narrow = (
            model.device.type == "cpu" and number_format.precision is not Precision.FLOAT32
        )
        query_scale = (model.config.hidden_size // self.num_heads) ** -0.5
        self.layers = [
            _make_layer(layer, names, number_format, query_scale)
            for layer in model.get_submodule(names.layers).children()
        ]

    def batches(self, lengths: np.ndarray, budget: int, num_parallel: int) -> list[np.ndarray]:
        """Text numbers of batches of at most `budget` tokens, `num_parallel` of them at once."""
        return flat_batches(lengths, budget, num_parallel)

    def blocks(self, batch: Batch) -> Iterator[tuple[Group, Tensor]]:
        """States (N, L, D) of each group; texts are not padded, the batch gets a few tokens."""
        filled = self._filler.fill_up(batch)
        x_TD = self._embed_tokens(filled)
        attention = self._attention_function(filled.groups, x_TD)
        for layer in self.layers:
            x_TD = layer(x_TD, attention)
        for group in batch.groups:
            yield group, x_TD[group.tokens].view(group.num_texts, group.length, -1)

    def _embed_tokens(self, batch: Batch) -> Tensor:
        positions_T = _positions(batch, self.padding_idx)
        device = self.model.device
        embeddings: Any = self.model.embeddings
        x_TD: Tensor = embeddings(
            input_ids=upload(batch.ids_T[None], device),
            position_ids=upload(positions_T[None], device),
        )[0]
        if isinstance(project := getattr(self.model, "embeddings_project", None), nn.Linear):
            x_TD = project(x_TD)  # ELECTRA small: embeddings narrower than states
        return x_TD

    def _attention_function(self, groups: tuple[Group, ...], x_TD: Tensor) -> AttentionFunction:
        """Attention over these texts, for every layer; differentiable where autograd is on."""
        bias_of = self._relative_bias(max(group.length for group in groups), x_TD)
        texts = FlatTexts(groups, x_TD.device)
        if torch.is_grad_enabled():
            buckets = texts.buckets

            def bucketed(projections: tuple[Tensor, ...], dropout: float) -> Tensor:
                query, key, value = projections
                heads = self.num_heads
                return bucketed_attention(query, key, value, buckets, heads, dropout, bias_of)

            return bucketed
        if self._is_narrow:
            chunks = text_chunks(groups, self.num_heads)

            def narrow(projections: tuple[Tensor, ...], dropout: float) -> Tensor:
                [joint] = projections
                return bfloat16_attention(joint, chunks, self.num_heads, bias_of)

            return narrow
        biases = None if bias_of is None else [bias_of(group.length) for group in groups]

        def flat(projections: tuple[Tensor, ...], dropout: float) -> Tensor:
            query, key, value = projections
            return flat_attention(query, key, value, texts, self.num_heads, biases)

        return flat

    def _relative_bias(self, longest: int, x_TD: Tensor) -> Callable[[int], Tensor] | None:
        """MPNet's score offsets for texts of a length, shared by all layers."""
        if self.model.config.model_type != "mpnet":
            return None
        encoder: Any = self.model.encoder
        distance_R = torch.arange(-longest + 1, longest, device=x_TD.device)
        bias_RH = encoder.relative_attention_bias(encoder.relative_position_bucket(distance_R))
        bias_HR = bias_RH.to(x_TD.dtype).t().contiguous()
        steps_L = torch.arange(longest, device=x_TD.device)
        index_LL = steps_L[None, :] - steps_L[:, None] + longest - 1
        return lambda length: bias_HR[:, index_LL[:length, :length]][None]


def padding_idx(model: nn.Module) -> int | None:
    """The padding id of models that number positions from it on (RoBERTa, XLM-R, MPNet)."""
    return getattr(getattr(model, "embeddings", None), "padding_idx", None)


def _positions(batch: Batch, padding_idx: int | None) -> np.ndarray:
    """Position of each token in its text: from 0 on, or as RoBERTa counts.

    RoBERTa starts after padding_idx and gives a padding token inside a text that very position.
    """
    positions_T: np.ndarray
    first_T = np.repeat(np.cumsum(batch.lengths) - batch.lengths, batch.lengths)
    if padding_idx is None:
        positions_T = np.arange(batch.num_tokens) - first_T
        return positions_T
    is_word_T = batch.ids_T != padding_idx
    num_words_T = np.cumsum(is_word_T)
    num_before_T = (num_words_T - is_word_T)[first_T]
    positions_T = (num_words_T - num_before_T) * is_word_T + padding_idx
    return positions_T


def _make_layer(
    layer: nn.Module, names: LayerNames, number_format: LinearFormat, query_scale: float
) -> TransformerLayer:
    """The layer's modules by the names of its family, linear ones in the number format."""
    parts = {
        part.name: _find_part(layer, getattr(names, part.name))
        for part in fields(names)
        if part.name != "layers"  # where the layers are, not a part of one
    }
    inputs = [parts[name] for name in ("query", "key", "value")]
    return TransformerLayer(
        projections=FusedProjections(inputs, number_format, query_scale),
        attention_out=FusedLinear(parts["attention_out"], number_format),
        attention_norm=parts["attention_norm"],
        feed_forward=FusedFeedForward(
            parts["up"], parts["activation"], parts["down"], parts["dropout"], number_format
        ),
        norm=parts["norm"],
        score_dropout=parts["score_dropout"],
        attention_dropout=parts["attention_dropout"],
    )


def _find_part(layer: nn.Module, name: str | None) -> Any:  # noqa: ANN401
    """A part of a layer by its dotted name; an activation may be a plain function."""
    return None if name is None else reduce(getattr, name.split("."), layer)
