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

from sbert_core.encoder.attention import bucketed_attention, flat_attention, length_buckets
from sbert_core.encoder.batching import Batch, BatchLayout, Group, flat_batches
from sbert_core.encoder.families import LayerNames
from sbert_core.encoder.fused_linear import FusedLinear

# A matrix product of very few rows takes another kernel and gives other last bits: MiniLM on a CPU
# repeated its bits from 12 tokens up. Shorter batches are filled up with dummy texts of one token.
MIN_FLAT_TOKENS = 64
# oneDNN builds a kernel for each number of tokens it meets (0.4-2 ms, 200 kB), so numbers are
# rounded up: by 1/128 of a full batch for those that are nearly full, as most are, by 1/16 for the
# rest of a window. That leaves 30 of them.
FULL_STEPS, PART_STEPS = 128, 16
LEAST_STEP = 16

# Queries, keys, values and the dropout rate -> the context of each token.
AttentionFunction = Callable[[Tensor, Tensor, Tensor, float], Tensor]


@dataclass(frozen=True, slots=True)
class TransformerLayer:
    """The modules of one layer, whatever its family calls them."""

    query: FusedLinear
    key: FusedLinear
    value: FusedLinear
    attention_out: FusedLinear
    attention_norm: nn.LayerNorm
    up: FusedLinear
    activation: Callable[[Tensor], Tensor]
    down: FusedLinear
    norm: nn.LayerNorm
    score_dropout: nn.Dropout
    attention_dropout: nn.Dropout | None
    dropout: nn.Dropout

    def __call__(self, x_TD: Tensor, attention: AttentionFunction) -> Tensor:
        """The next layer's input."""
        query_TD, key_TD, value_TD = self.query(x_TD), self.key(x_TD), self.value(x_TD)
        context_TD = attention(query_TD, key_TD, value_TD, _dropout_rate(self.score_dropout))
        x_TD = self.attention_norm(
            _add_residual(self.attention_out, self.attention_dropout, context_TD, x_TD)
        )
        hidden = self.up.with_activation(x_TD, self.activation)
        out_TD: Tensor = self.norm(_add_residual(self.down, self.dropout, hidden, x_TD))
        return out_TD


def _dropout_rate(dropout: nn.Dropout | None) -> float:
    return dropout.p if dropout is not None and dropout.training else 0.0


def _add_residual(
    linear: FusedLinear, dropout: nn.Dropout | None, x: Tensor, residual: Tensor
) -> Tensor:
    if dropout is not None and _dropout_rate(dropout):
        out: Tensor = residual + dropout(linear(x))
        return out
    return linear.with_residual(x, residual)


class FlatBackbone:
    """The layers of a known family over one flat row of tokens."""

    layout: ClassVar[BatchLayout] = BatchLayout.FLAT
    is_reentrant = True  # what a batch leaves behind (packed weights, full_tokens) changes no bit

    def __init__(self, model: PreTrainedModel, names: LayerNames, pad_id: int) -> None:
        self.model = model
        self.pad_id = pad_id
        self.num_heads = model.config.num_attention_heads
        self.padding_idx = padding_idx(model)
        self.full_tokens = MIN_FLAT_TOKENS  # of the largest batch so far, or somewhat more
        self.layers = [
            TransformerLayer(
                **{
                    part.name: _find_part(layer, getattr(names, part.name))
                    for part in fields(TransformerLayer)
                }
            )
            for layer in model.get_submodule(names.layers).children()
        ]

    def batches(self, lengths: np.ndarray, budget: int) -> list[np.ndarray]:
        """Text numbers of each batch of at most `budget` tokens."""
        return flat_batches(lengths, budget)

    def blocks(self, batch: Batch) -> Iterator[tuple[Group, Tensor]]:
        """States (N, L, D) of each group; texts are not padded, the batch gets a few tokens."""
        filled = self._fill_up(batch)
        x_TD = self._embed_tokens(filled)
        attention = self._attention_function(filled.groups, x_TD)
        for layer in self.layers:
            x_TD = layer(x_TD, attention)
        for group in batch.groups:
            yield group, x_TD[group.tokens].view(group.num_texts, group.length, -1)

    def _fill_up(self, batch: Batch) -> Batch:
        """The batch with dummy texts of one token behind it, up to a rounded number of tokens."""
        step = LEAST_STEP  # with gradients, independent of the batches that came before
        if not torch.is_grad_enabled():
            while self.full_tokens < batch.num_tokens:
                self.full_tokens *= 2
            is_full = batch.num_tokens > self.full_tokens * 7 // 8
            step = max(LEAST_STEP, self.full_tokens // (FULL_STEPS if is_full else PART_STEPS))
        num_missing = max(MIN_FLAT_TOKENS - batch.num_tokens, -batch.num_tokens % step)
        if num_missing == 0:
            return batch
        return Batch(
            rows=batch.rows,
            lengths=np.append(batch.lengths, np.ones(num_missing, np.int64)),
            ids_T=np.append(batch.ids_T, np.full(num_missing, self.pad_id)),
            groups=(*batch.groups, Group(len(batch.rows), batch.num_tokens, num_missing, 1)),
        )

    def _embed_tokens(self, batch: Batch) -> Tensor:
        positions_T = _positions(batch, self.padding_idx)
        device = self.model.device
        embeddings: Any = self.model.embeddings
        x_TD: Tensor = embeddings(
            input_ids=torch.from_numpy(batch.ids_T)[None].to(device),
            position_ids=torch.from_numpy(positions_T)[None].to(device),
        )[0]
        if isinstance(project := getattr(self.model, "embeddings_project", None), nn.Linear):
            x_TD = project(x_TD)  # ELECTRA small: embeddings narrower than states
        return x_TD

    def _attention_function(self, groups: tuple[Group, ...], x_TD: Tensor) -> AttentionFunction:
        """Attention over these texts, for every layer; differentiable where autograd is on."""
        bias_of = self._relative_bias(max(group.length for group in groups), x_TD)
        if torch.is_grad_enabled():
            buckets = length_buckets(groups, x_TD.device)

            def bucketed(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
                heads = self.num_heads
                return bucketed_attention(query, key, value, buckets, heads, dropout, bias_of)

            return bucketed
        biases = None if bias_of is None else [bias_of(group.length) for group in groups]

        def flat(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
            return flat_attention(query, key, value, groups, self.num_heads, biases)

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


def _find_part(layer: nn.Module, name: str | None) -> Any:  # noqa: ANN401
    """A part of a layer by its dotted name; an activation may be a plain function."""
    if name is None:
        return None
    part = reduce(getattr, name.split("."), layer)
    return FusedLinear(part) if isinstance(part, nn.Linear) else part
