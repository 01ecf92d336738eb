"""Attention over a flat row of tokens that belong to many texts.

In:  queries, keys and values of all tokens, end to end, and the groups of equal-length texts.
Out: the context of each token, computed from the tokens of its own text only.

Without gradients, texts of equal length share a call (`flat_attention`). With gradients, texts of
similar length share one, padded for this operation alone (`bucketed_attention`): a training batch
has few texts of any one length, and attention is a twentieth of its work.

Shapes: T tokens, D dimensions, H heads, E dimensions per head, N texts of one length L.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from sbert_core.encoder.batching import Group
from sbert_core.encoder.transfer import upload

HALF_PRECISION = (torch.float16, torch.bfloat16)
# Texts of these lengths go through plain matrix products on a CPU: torch's flash kernel takes the
# last L % 16 scores of a row one by one. The whole model was 4-5 % faster for lengths 45-128
# (MiniLM, one thread, best of 25), equal or slower for shorter and longer ones.
DENSE_LENGTHS = range(40, 150)
BOTH_SIDES = (-1, -1)  # a window without limits, as the varlen kernel spells it


@dataclass(frozen=True)
class FlatTexts:
    """Where the texts of a flat row begin and end: computed once per batch, for all layers."""

    groups: tuple[Group, ...]
    device: torch.device

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return max(group.length for group in self.groups)

    @cached_property
    def ends(self) -> Tensor:
        """The end of each text in the row, behind a zero, as the varlen kernel takes it."""
        lengths = [group.length for group in self.groups for _ in range(group.num_texts)]
        return upload(np.cumsum([0, *lengths], dtype=np.int32), self.device)

    @cached_property
    def buckets(self) -> "list[LengthBucket]":
        """Texts of similar length, for training."""
        return length_buckets(self.groups, self.device)


def flat_attention(
    query_TD: Tensor,
    key_TD: Tensor,
    value_TD: Tensor,
    texts: FlatTexts,
    num_heads: int,
    biases: list[Tensor] | None = None,
) -> Tensor:
    """Context of each token; texts of equal length share one call. Overwrites the queries.

    biases: one (1, H, L, L) score offset per group, for models with relative positions.
    """
    if has_varlen_kernel(query_TD) and biases is None:
        query, key, value = (x.view(len(x), num_heads, -1) for x in (query_TD, key_TD, value_TD))
        return varlen_attention(query, key, value, texts).flatten(1)
    for number, group in enumerate(texts.groups):
        query_NLHE, key_NLHE, value_NLHE = (
            x_TD[group.tokens].view(group.num_texts, group.length, num_heads, -1)
            for x_TD in (query_TD, key_TD, value_TD)
        )
        if group.length in DENSE_LENGTHS and biases is None and not query_TD.is_cuda:
            _dense_attention(query_NLHE, key_NLHE, value_NLHE)
            continue
        context_NHLE = F.scaled_dot_product_attention(
            query_NLHE.transpose(1, 2),
            key_NLHE.transpose(1, 2),
            value_NLHE.transpose(1, 2),
            attn_mask=None if biases is None else biases[number],
        )
        query_NLHE.copy_(context_NHLE.transpose(1, 2))
    return query_TD


def _dense_attention(query_NLHE: Tensor, key_NLHE: Tensor, value_NLHE: Tensor) -> None:
    """Text by text, so that the scores of all heads stay in the cache. Overwrites the queries."""
    _, length, num_heads, dim = query_NLHE.shape
    scores_HLL = query_NLHE.new_empty(num_heads, length, length)
    for query_LHE, key_LHE, value_LHE in zip(query_NLHE, key_NLHE, value_NLHE, strict=True):
        query_HLE, value_HLE = query_LHE.transpose(0, 1), value_LHE.transpose(0, 1)
        key_HEL = key_LHE.permute(1, 2, 0)
        torch.baddbmm(scores_HLL, query_HLE, key_HEL, beta=0, alpha=dim**-0.5, out=scores_HLL)
        torch.softmax(scores_HLL, dim=-1, out=scores_HLL)
        torch.bmm(scores_HLL, value_HLE, out=query_HLE)


def has_varlen_kernel(query: Tensor) -> bool:
    """Does torch have a flash kernel for texts of any lengths on this device and type?"""
    return query.is_cuda and query.dtype in HALF_PRECISION


def varlen_attention(
    query_THE: Tensor,
    key_THE: Tensor,
    value_THE: Tensor,
    texts: FlatTexts,
    window: tuple[int, int] = BOTH_SIDES,
    scale: float | None = None,
) -> Tensor:
    """One launch of the flash kernel for the whole batch (CUDA, half precision).

    window: tokens before and after a token that it sees; -1 for all. Keys may have fewer heads.
    """
    longest = texts.longest
    context_THE = varlen_attn(
        query_THE,
        key_THE,
        value_THE,
        texts.ends,
        texts.ends,
        longest,
        longest,
        scale=scale,
        window_size=window,
        enable_gqa=key_THE.shape[1] != query_THE.shape[1],
    )
    assert isinstance(context_THE, Tensor), "varlen_attn returns a tuple only with statistics"
    return context_THE


@dataclass(frozen=True, slots=True)
class LengthBucket:
    """Neighbouring texts of similar length that share a call of attention, padded to the longest.

    tokens: the bucket's part of the flat row.
    index_X: token of each of the N x L cells; None if no cell is padding.
    real_X: the cells that hold a token.
    mask_N11L: offset of the scores: 0, or minus infinity for padding.
    """

    tokens: slice
    num_texts: int
    length: int
    index_X: Tensor | None = None
    real_X: Tensor | None = None
    mask_N11L: Tensor | None = None

    def pad(self, x_TD: Tensor) -> Tensor:
        """The bucket's rows of a flat tensor as (N, L, D); padding repeats a text's first row."""
        bucket_TD = x_TD[self.tokens]
        if self.index_X is not None:
            bucket_TD = bucket_TD.index_select(0, self.index_X)
        return bucket_TD.view(self.num_texts, self.length, -1)

    def unpad(self, x_NLD: Tensor) -> Tensor:
        """The inverse of `pad`: a flat tensor of the real tokens."""
        flat_XD = x_NLD.flatten(0, 1)
        return flat_XD if self.real_X is None else flat_XD.index_select(0, self.real_X)


def length_buckets(groups: tuple[Group, ...], device: torch.device) -> list[LengthBucket]:
    """Groups, longest first, in buckets whose shortest text has over half the longest's tokens."""
    buckets: list[list[Group]] = []
    for group in groups:
        if buckets and 2 * group.length > buckets[-1][0].length:
            buckets[-1].append(group)
        else:
            buckets.append([group])
    return [_make_bucket(members, device) for members in buckets]


def _make_bucket(groups: list[Group], device: torch.device) -> LengthBucket:
    lengths_N = np.repeat([g.length for g in groups], [g.num_texts for g in groups])
    longest = groups[0].length
    tokens = slice(groups[0].tokens.start, groups[-1].tokens.stop)
    if len(groups) == 1:
        return LengthBucket(tokens, len(lengths_N), longest)
    first_N1 = (np.cumsum(lengths_N) - lengths_N)[:, None]
    is_real_NL = np.arange(longest) < lengths_N[:, None]
    index_NL = np.where(is_real_NL, first_N1 + np.arange(longest), first_N1)
    mask_NL = np.where(is_real_NL, np.float32(0), np.float32(-np.inf))
    return LengthBucket(
        tokens,
        len(lengths_N),
        longest,
        torch.from_numpy(index_NL.reshape(-1)).to(device),
        torch.from_numpy(np.flatnonzero(is_real_NL)).to(device),
        torch.from_numpy(mask_NL[:, None, None]).to(device),
    )


def bucketed_attention(
    query_TD: Tensor,
    key_TD: Tensor,
    value_TD: Tensor,
    buckets: list[LengthBucket],
    num_heads: int,
    dropout: float,
    bias_of: Callable[[int], Tensor | None] | None = None,
    scale: float | None = None,
) -> Tensor:
    """As `flat_attention`, but differentiable.

    dropout: share of the attention scores that are dropped.
    bias_of: the score offsets (1, H, L, L) of texts of L tokens, or None where they have none.
    """
    contexts = []
    for bucket in buckets:
        query_NHLE, key_NHLE, value_NHLE = (
            bucket.pad(x_TD).view(bucket.num_texts, bucket.length, num_heads, -1).transpose(1, 2)
            for x_TD in (query_TD, key_TD, value_TD)
        )
        mask, bias = bucket.mask_N11L, None if bias_of is None else bias_of(bucket.length)
        if bias is not None:
            mask = bias if mask is None else bias + mask
        context_NHLE = F.scaled_dot_product_attention(
            query_NHLE,
            key_NHLE,
            value_NHLE,
            attn_mask=None if mask is None else mask.to(query_NHLE.dtype),
            dropout_p=dropout,
            scale=scale,
        )
        contexts.append(bucket.unpad(context_NHLE.transpose(1, 2).flatten(2)))
    return torch.cat(contexts)
