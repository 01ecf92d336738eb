"""Token states -> one vector per text.

In:  blocks of states of texts with the same number of tokens, and how many leading tokens (a
     prompt) to leave out. Blocks hold no padding, so no function here needs a mask.
Out: one row per text.

Shapes: N texts, L tokens each, D dimensions.
"""

import torch
from torch import Tensor

from sbert_core.choices import Pooling


def mean_pool(states_NLD: Tensor, num_skipped: int) -> Tensor:
    """Average of the tokens."""
    return states_NLD[:, num_skipped:].mean(1)


def cls_pool(states_NLD: Tensor, num_skipped: int) -> Tensor:
    """State of the first token."""
    first_ND: Tensor = states_NLD[:, num_skipped]
    return first_ND


def max_pool(states_NLD: Tensor, num_skipped: int) -> Tensor:
    """Largest value of each dimension."""
    return states_NLD[:, num_skipped:].amax(1)


def mean_sqrt_len_pool(states_NLD: Tensor, num_skipped: int) -> Tensor:
    """Sum of the tokens over the square root of their number."""
    kept_NLD = states_NLD[:, num_skipped:]
    scaled_ND: Tensor = kept_NLD.sum(1) / kept_NLD.shape[1] ** 0.5
    return scaled_ND


def weighted_mean_pool(states_NLD: Tensor, num_skipped: int) -> Tensor:
    """Average in which token i of the text weighs i (SGPT); skipped tokens keep their numbers."""
    kept_NLD = states_NLD[:, num_skipped:]
    weight_L1 = torch.arange(
        num_skipped + 1, states_NLD.shape[1] + 1, device=kept_NLD.device, dtype=kept_NLD.dtype
    ).unsqueeze(1)
    return (kept_NLD * weight_L1).sum(1) / weight_L1.sum()


def last_token_pool(states_NLD: Tensor, num_skipped: int) -> Tensor:
    """State of the last token."""
    return states_NLD[:, -1]


POOLERS = {
    Pooling.MEAN: mean_pool,
    Pooling.CLS: cls_pool,
    Pooling.MAX: max_pool,
    Pooling.MEAN_SQRT_LEN: mean_sqrt_len_pool,
    Pooling.WEIGHTED_MEAN: weighted_mean_pool,
    Pooling.LAST_TOKEN: last_token_pool,
}


def pool(states_NLD: Tensor, modes: tuple[Pooling, ...], num_skipped: int = 0) -> Tensor:
    """One row per text: each mode's vector, side by side, in float32 at least.

    `num_skipped` leading tokens (a prompt) are left out, but never the whole text.
    """
    states_NLD = states_NLD.to(torch.promote_types(states_NLD.dtype, torch.float32))
    num_skipped = min(num_skipped, states_NLD.shape[1] - 1)
    return torch.cat([POOLERS[mode](states_NLD, num_skipped) for mode in modes], dim=1)
