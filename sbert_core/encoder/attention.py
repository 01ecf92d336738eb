"""Attention over a flat row of tokens that belong to many texts.

In:  queries, keys and values of all tokens, end to end, and where the texts lie.
Out: the context of each token, from the tokens of its own text alone.

Shapes: T tokens, D dimensions, H heads, E dimensions per head, N texts of one length L.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from sbert_core.encoder.batching import Group

HALF_PRECISION = (torch.float16, torch.bfloat16)
# Texts of these lengths go through plain matrix products on a CPU: torch's flash kernel takes the
# last L % 16 scores of a row one by one. The whole model was 4-5 % faster for lengths 45-128
# (MiniLM, one thread, best of 25), equal or slower for shorter and longer ones.
DENSE_LENGTHS = range(40, 150)


def flat_attention(
    query_TD: Tensor,
    key_TD: Tensor,
    value_TD: Tensor,
    groups: tuple[Group, ...],
    num_heads: int,
    biases: list[Tensor] | None = None,
) -> Tensor:
    """Every text attends to itself; texts of equal length share one call. Overwrites the queries.

    `biases` holds one (1, H, L, L) score offset per group, for models with relative positions.
    """
    if query_TD.is_cuda and query_TD.dtype in HALF_PRECISION and biases is None:
        return _varlen_attention(query_TD, key_TD, value_TD, groups, num_heads)
    for number, group in enumerate(groups):
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


def _varlen_attention(
    query_TD: Tensor, key_TD: Tensor, value_TD: Tensor, groups: tuple[Group, ...], num_heads: int
) -> Tensor:
    """One launch of the flash kernel for the whole batch (CUDA, half precision)."""
    lengths = [group.length for group in groups for _ in range(group.num_texts)]
    ends = torch.tensor([0, *lengths], dtype=torch.int32, device=query_TD.device).cumsum(0)
    ends = ends.to(torch.int32)
    query, key, value = (x.unflatten(1, (num_heads, -1)) for x in (query_TD, key_TD, value_TD))
    context_THE = varlen_attn(query, key, value, ends, ends, max(lengths), max(lengths))
    assert isinstance(context_THE, Tensor), "only a tuple when statistics are asked for"
    return context_THE.flatten(1)
