"""Batch of token ids -> token states through a model's own forward, over one flat row of tokens.

In:  a Hugging Face model that calls transformers' attention interface, and a Batch.
Out: for each group of equal-length texts, a block of their states. No padding.

The model gets one row of tokens with the position of each in its text. Its layers treat tokens
apart but for attention, and that is ours: `attend`, registered under a name that the model's
configuration carries. It keeps texts apart, and looks only backwards or within a window where the
model does. Linear layers are replaced by packed ones, whose rows have bits of their own.

Shapes: T tokens, H heads, E dimensions per head, N texts of one length L, Q queries, K keys.
"""

import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from sbert_core.encoder.attention import (
    BOTH_SIDES,
    FlatTexts,
    bucketed_attention,
    has_varlen_kernel,
    varlen_attention,
)
from sbert_core.encoder.batch_filler import BatchFiller
from sbert_core.encoder.batching import Batch, BatchLayout, Group, flat_batches
from sbert_core.encoder.fused_linear import LinearFormat, pack_linears
from sbert_core.encoder.transfer import upload

# Families whose forward takes positions, keeps no state and attends through the interface alone.
INTERFACE_FAMILIES = frozenset(
    (
        "modernbert",
        "eurobert",
        "nomic_bert",
        "gte",
        "jina_embeddings_v3",
        "qwen3",
        "gemma3_text",
    )
)
NAME = "sbert_flat"
QUERIES_PER_MASK = 512  # of a text with a window: its mask is as wide as they and their windows
_running = threading.local()  # texts: those of the flat row that this thread runs


class InterfaceBackbone:
    """A model's own forward over one flat row of tokens."""

    layout: ClassVar[BatchLayout] = BatchLayout.FLAT
    is_reentrant = True

    def __init__(self, model: PreTrainedModel, pad_id: int, number_format: LinearFormat) -> None:
        self.model = model
        self.pad_id = pad_id
        self._filler = BatchFiller(pad_id)
        self._has_types = "token_type_ids" in inspect.signature(model.forward).parameters
        model.config._attn_implementation = NAME
        model.config.use_cache = False
        pack_linears(model, number_format)

    def batches(self, lengths: np.ndarray, budget: int, num_parallel: int) -> list[np.ndarray]:
        """Text numbers of batches of at most `budget` tokens, `num_parallel` of them at once."""
        return flat_batches(lengths, budget, num_parallel)

    def blocks(self, batch: Batch) -> Iterator[tuple[Group, Tensor]]:
        """States (N, L, D) of each group; texts are not padded, the batch gets a few tokens."""
        filled = self._filler.fill_up(batch)
        device = self.model.device
        first_T = np.repeat(np.cumsum(filled.lengths) - filled.lengths, filled.lengths)
        inputs = {
            "input_ids": upload(filled.ids_T[None], device),
            "position_ids": upload((np.arange(len(first_T)) - first_T)[None], device),
        }
        if self._has_types:  # else as many zeros as the model has positions
            inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
        with _run_flat(FlatTexts(filled.groups, device)):
            x_TD = self.model(**inputs).last_hidden_state[0]
        for group in batch.groups:
            yield group, x_TD[group.tokens].view(group.num_texts, group.length, -1)


@contextmanager
def _run_flat(texts: FlatTexts) -> Iterator[None]:
    """Attention in this thread keeps these texts apart, inside the block."""
    _running.texts = texts
    try:
        yield
    finally:
        _running.texts = None


def attend(  # noqa: PLR0913 - the signature is that of transformers
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **options: Any,  # noqa: ANN401
) -> tuple[Tensor, None]:
    """Context (1, T, H, E) of each token; as torch's attention where no flat row is running."""
    texts: FlatTexts | None = getattr(_running, "texts", None)
    if texts is None:
        context: Tensor
        context, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **options
        )
        return context, None
    is_causal: bool = options.get("is_causal", getattr(module, "is_causal", True))
    rule = VisibleTokens(is_causal, sliding_window)
    query_THE, key_THE, value_THE = (x[0].transpose(0, 1) for x in (query, key, value))
    if has_varlen_kernel(query):
        return varlen_attention(query_THE, key_THE, value_THE, texts, rule.window, scaling)[
            None
        ], None
    num_heads = query_THE.shape[1]
    key_THE, value_THE = (_repeat_heads(x, num_heads) for x in (key_THE, value_THE))
    if torch.is_grad_enabled():
        context_TD = bucketed_attention(
            query_THE.flatten(1),
            key_THE.flatten(1),
            value_THE.flatten(1),
            texts.buckets,
            num_heads,
            dropout,
            lambda length: rule.offsets(length, query),
            scaling,
        )
        return context_TD.view(1, len(context_TD), num_heads, -1), None
    context_THE = torch.empty_like(query_THE, memory_format=torch.contiguous_format)
    for group in texts.groups:
        shape = (group.num_texts, group.length)
        query_NHLE, key_NHLE, value_NHLE = (
            x[group.tokens].view(*shape, num_heads, -1).transpose(1, 2)
            for x in (query_THE, key_THE, value_THE)
        )
        context_NHLE = _group_attention(query_NHLE, key_NHLE, value_NHLE, rule, scaling)
        context_THE[group.tokens].view(*shape, num_heads, -1).copy_(context_NHLE.transpose(1, 2))
    return context_THE[None], None


def _group_attention(
    query_NHLE: Tensor,
    key_NHLE: Tensor,
    value_NHLE: Tensor,
    rule: "VisibleTokens",
    scaling: float | None,
) -> Tensor:
    """Context of texts of equal length, without a mask that grows with the square of it."""
    length = query_NHLE.shape[2]
    if rule.has_reach(length):
        return F.scaled_dot_product_attention(
            query_NHLE, key_NHLE, value_NHLE, is_causal=rule.is_causal, scale=scaling
        )
    blocks = []
    for first in range(0, length, QUERIES_PER_MASK):
        queries = range(first, min(first + QUERIES_PER_MASK, length))
        keys = rule.seen_from(queries, length)
        blocks.append(
            F.scaled_dot_product_attention(
                query_NHLE[:, :, queries.start : queries.stop],
                key_NHLE[:, :, keys.start : keys.stop],
                value_NHLE[:, :, keys.start : keys.stop],
                attn_mask=rule.mask(queries, keys, query_NHLE),
                scale=scaling,
            )
        )
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)


class VisibleTokens:
    """Which tokens of its text a token attends to.

    is_causal: none behind it. window: only those less than so many tokens away; None for all.
    """

    def __init__(self, is_causal: bool, window: int | None) -> None:
        self.is_causal = is_causal
        self.reach = None if window is None else window - 1

    @property
    def window(self) -> tuple[int, int]:
        """Tokens before and after that are seen, as the varlen kernel takes them."""
        reach = BOTH_SIDES[0] if self.reach is None else self.reach
        return (reach, 0 if self.is_causal else reach)

    def has_reach(self, length: int) -> bool:
        """Does the window hide nothing in a text of so many tokens?"""
        return self.reach is None or self.reach >= length - 1

    def seen_from(self, queries: range, length: int) -> range:
        """The tokens of a text that any of these sees."""
        reach = length if self.reach is None else self.reach
        end = queries.stop if self.is_causal else queries.stop + reach
        return range(max(0, queries.start - reach), min(end, length))

    def offsets(self, length: int, like: Tensor) -> Tensor | None:
        """Score offsets (1, 1, L, L) of a whole text; None where every token is seen."""
        if self.has_reach(length) and not self.is_causal:
            return None
        return self.mask(range(length), range(length), like)

    def mask(self, queries: range, keys: range, like: Tensor) -> Tensor:
        """Score offsets (1, 1, Q, K): minus infinity for tokens that are not seen."""
        query_Q = torch.arange(queries.start, queries.stop, device=like.device)
        key_K = torch.arange(keys.start, keys.stop, device=like.device)
        distance_QK = query_Q[:, None] - key_K[None, :]
        reach = len(keys) if self.reach is None else self.reach
        is_hidden_QK = distance_QK.abs() > reach
        if self.is_causal:
            is_hidden_QK |= distance_QK < 0
        offsets_QK = like.new_zeros(len(queries), len(keys)).masked_fill_(is_hidden_QK, -torch.inf)
        return offsets_QK[None, None]


def _repeat_heads(x_THE: Tensor, num_heads: int) -> Tensor:
    """Keys or values that several heads share, once for each."""
    return x_THE.repeat_interleave(num_heads // x_THE.shape[1], dim=1)


def _mask(*sizes: Any, **options: Any) -> Tensor | None:  # noqa: ANN401
    """No mask for a flat row, else torch's."""
    if getattr(_running, "texts", None) is not None:
        return None
    mask: Tensor | None = sdpa_mask(*sizes, **options)
    return mask


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, _mask)
