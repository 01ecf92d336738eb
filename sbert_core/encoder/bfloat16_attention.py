"""Attention in bfloat16 on a CPU, for the number formats whose products are faster than float32.

In:  scaled queries, keys and values of all tokens, end to end, and which texts share a call.
Out: the context of each token, computed from the tokens of its own text only.

torch's flash kernel has no fast products of bfloat16 on CPUs; a product, a softmax and a product of
oneDNN take half its time. oneDNN makes a kernel of 0.7 MB, in 0.2 ms, for each shape it meets, so
lengths are rounded up and texts are taken by powers of two. How a text is filled up depends on its
own length, so that its bits do.

A long text is taken by a few heads and queries at a time: its scores, which grow with the square of
its length, then stay in the cache too (all at once: 6 GB for 8,192 tokens and 16 heads, and seven
times the time).

Shapes: T tokens, D dimensions, H heads, E dimensions per head, N texts of L tokens, F with those
that fill them up, Q queries of a block; X, Y are Q and F, in the order in which they lie in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sbert_core.encoder.batching import Group

SCORES_AT_ONCE = 2**18  # they stay in a core's cache
# One text may have more: in blocks its heads cost 3 % of the encoder at 256 tokens, and save two
# thirds of the time of attention at 512.
SCORES_OF_A_TEXT = 2**20
LENGTH_STEP = 16
# Up to this length scores lie in memory with a row per key: a softmax over short rows fills no
# vector register, one over columns does. A third to a tenth less time for attention.
LONGEST_BY_KEY = 64


@dataclass(frozen=True, slots=True)
class EqualTexts:
    """Texts of one length in a chunk: where their tokens are, which of its texts they are."""

    tokens: slice
    texts: slice
    length: int


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Texts that share a call, each filled up to the same number of tokens."""

    num_texts: int
    filled: int
    pieces: tuple[EqualTexts, ...]


def text_chunks(groups: Sequence[Group], num_heads: int) -> list[TextChunk]:
    """Chunks of powers of two of texts whose lengths round to the same."""
    chunks = []
    for filled, bucket in _buckets(groups):
        most = max(1, SCORES_AT_ONCE // (num_heads * filled * filled))
        left = sum(group.num_texts for group in bucket)
        first = 0
        while left:
            num_texts = 1 << (min(left, most).bit_length() - 1)
            pieces = tuple(_pieces(bucket, first, num_texts))
            chunks.append(TextChunk(num_texts, filled, pieces))
            first, left = first + num_texts, left - num_texts
    return chunks


def _buckets(groups: Sequence[Group]) -> Iterator[tuple[int, list[Group]]]:
    """Neighbouring groups whose lengths round to the same."""
    bucket: list[Group] = []
    for group in groups:
        if bucket and _round_up(bucket[0].length) != _round_up(group.length):
            yield _round_up(bucket[0].length), bucket
            bucket = []
        bucket.append(group)
    yield _round_up(bucket[0].length), bucket


def _round_up(length: int) -> int:
    return length + -length % LENGTH_STEP


def _pieces(bucket: list[Group], first: int, num_texts: int) -> Iterator[EqualTexts]:
    """The texts first..first+num_texts of a bucket, group by group."""
    start = 0  # of the group, among the texts of the bucket
    for group in bucket:
        own_first, end = max(first, start), min(first + num_texts, start + group.num_texts)
        if own_first < end:
            token = group.first_token + (own_first - start) * group.length
            yield EqualTexts(
                slice(token, token + (end - own_first) * group.length),
                slice(own_first - first, end - first),
                group.length,
            )
        start += group.num_texts


def bfloat16_attention(
    projections_TP: Tensor,
    chunks: Sequence[TextChunk],
    num_heads: int,
    bias_of: Callable[[int], Tensor] | None = None,
) -> Tensor:
    """Context (T, D) of each token.

    projections_TP: its query, key and value, one after the other.
    bias_of: score offsets (1, H, L, L) of texts of L tokens, for models with relative positions.
    """
    num_dims = projections_TP.shape[1] // 3
    dim = num_dims // num_heads
    context_TD = projections_TP.new_empty(len(projections_TP), num_dims)
    biases: dict[int, Tensor] = {}
    if bias_of is not None:
        biases = {own.length: bias_of(own.length) for chunk in chunks for own in chunk.pieces}
    for chunk in chunks:
        shape = (chunk.num_texts, num_heads, chunk.filled, dim)
        filled_3NHFE = projections_TP.new_empty(3, *shape)
        for piece in chunk.pieces:
            # Values of a filled-up text weigh nothing, but nothing times infinity is not a number.
            filled_3NHFE[2, piece.texts, :, piece.length :] = 0
            own_NL3HE = projections_TP[piece.tokens].view(-1, piece.length, 3, num_heads, dim)
            filled_3NHFE[:, piece.texts, :, : piece.length] = own_NL3HE.permute(2, 0, 3, 1, 4)
        context_NHFE = _context_in_blocks(filled_3NHFE, chunk, biases)
        for piece in chunk.pieces:
            own_NLHE = context_TD[piece.tokens].view(-1, piece.length, num_heads, dim)
            own_NLHE.copy_(context_NHFE[piece.texts, :, : piece.length].transpose(1, 2))
    return context_TD


def _context_in_blocks(filled_3NHFE: Tensor, chunk: TextChunk, biases: dict[int, Tensor]) -> Tensor:
    """Context (N, H, F, E) of a chunk, a block of scores after the other."""
    query_NHFE, pair_2NHFE = filled_3NHFE[0], filled_3NHFE[1:]
    blocks = list(_score_blocks(chunk.filled, query_NHFE.shape[1]))
    if len(blocks) == 1:  # all but long texts
        return _context(query_NHFE, pair_2NHFE, chunk, biases, *blocks[0])
    for heads, queries in blocks:
        query_NHQE = query_NHFE[:, heads, queries]
        # The context takes the place of the queries, which no other block needs.
        query_NHQE.copy_(
            _context(query_NHQE, pair_2NHFE[:, :, heads], chunk, biases, heads, queries)
        )
    return query_NHFE


def _score_blocks(filled: int, num_heads: int) -> Iterator[tuple[slice, slice]]:
    """The heads and queries of each call: all, unless one text has too many scores by itself."""
    if num_heads * filled * filled <= SCORES_OF_A_TEXT:
        yield slice(0, num_heads), slice(0, filled)
        return
    most = max(1, SCORES_AT_ONCE // (filled * filled))
    heads = -(-num_heads // -(-num_heads // most))  # about equal shares: few shapes for oneDNN
    queries = max(LENGTH_STEP, min(filled, SCORES_AT_ONCE // filled))
    for head in range(0, num_heads, heads):
        for query in range(0, filled, queries):
            yield slice(head, head + heads), slice(query, query + queries)


def _context(
    query_NHQE: Tensor,
    pair_2NHFE: Tensor,
    chunk: TextChunk,
    biases: dict[int, Tensor],
    heads: slice,
    queries: slice,
) -> Tensor:
    """Context (N, H, Q, E) of a block of queries of some heads, over keys and values."""
    key_NHFE, value_NHFE = pair_2NHFE
    by_key = chunk.filled <= LONGEST_BY_KEY
    pair = (key_NHFE, query_NHQE) if by_key else (query_NHQE, key_NHFE)
    memory_NHXY = torch.matmul(pair[0], pair[1].mT)
    scores_NHQF = memory_NHXY.mT if by_key else memory_NHXY  # a row per query
    for piece in chunk.pieces:
        own_NHQF = scores_NHQF[piece.texts]
        if biases:
            bias_1HQL = biases[piece.length][:, heads, queries]
            own_NHQF[:, :, : bias_1HQL.shape[2], : piece.length] += bias_1HQL
        own_NHQF[..., piece.length :] = -torch.inf
    over_keys = -2 if by_key else -1
    shares_NHXY = torch.softmax(memory_NHXY.to_mkldnn(), over_keys).to_dense()
    return torch.matmul(shares_NHXY.mT if by_key else shares_NHXY, value_NHFE)
