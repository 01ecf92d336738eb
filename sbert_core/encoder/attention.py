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
        context_NHLE = F.scaled_dot_product_attention(
            query_NLHE.transpose(1, 2),
            key_NLHE.transpose(1, 2),
            value_NLHE.transpose(1, 2),
            attn_mask=None if biases is None else biases[number],
        )
        query_NLHE.copy_(context_NHLE.transpose(1, 2))
    return query_TD


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
