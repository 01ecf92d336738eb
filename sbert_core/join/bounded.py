"""All pairs of rows whose cosine reaches a threshold, without looking at each in full.

In:  vectors as they are stored (decoded, of any length).
Out: every pair with cos >= threshold: none missing, no cap per row.

Vectors are turned so that their leading dimensions hold most of the energy. The product of two
leading parts plus the product of the lengths of the rests is never below the cosine
(Cauchy-Schwarz), so one short product rules out nearly all pairs; the rest are scored in float64.

Shapes: N rows, D dimensions, L leading ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

TILE = 512  # rows of a tile: 1 MB of bounds, which a core keeps in its cache
LEADS = (16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512, 768)
# Costs on one core (Zen 4), to weigh dimensions against full scores; results do not depend on them.
PAIR_NS, PAIR_DIMENSION_NS, SCORE_NS = 0.4, 0.0185, 300.0
DENSE_SHARE = 1 / 256  # of a tile's pairs; above it one full product is cheaper than picking
SCORED_PAIRS = 16_384
FLOAT32_STEP = 2.0**-23
REST_SLACK = 1e-14  # what a difference of two sums near 1 may be short of, in float64


@dataclass(frozen=True, slots=True)
class Edges:
    """Pairs of places in two blocks, and their cosines."""

    a: np.ndarray  # int64
    b: np.ndarray
    cos: np.ndarray  # float32

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True)
class Turn:
    """An orthogonal basis, directions of large energy first, and how many of them lead."""

    basis: np.ndarray  # (D, D) float64, one direction a column
    num_leading: int
    pair_ns: float  # what a pair costs, about

    @classmethod
    def of(cls, sample: np.ndarray, threshold: float) -> "Turn":
        """The basis of a sample, and the number that makes a join at the threshold cheapest."""
        unit = unit_rows(sample)
        _, basis = np.linalg.eigh(unit.T @ unit)
        basis = basis[:, ::-1].copy()
        dim = unit.shape[1]
        choices = [lead for lead in LEADS if lead < dim] or [dim]
        best, least = choices[0], np.inf
        for lead in choices:
            if _bound_ns(lead) >= least:  # more dimensions cost more than they can save
                break
            cost = _pair_cost(leading(unit, basis, lead), threshold)
            if cost < least:
                best, least = lead, cost
        return cls(basis, best, least)


def _pair_cost(short_NL: np.ndarray, threshold: float) -> float:
    """Nanoseconds a pair takes, estimated from pairs of the sample."""
    half = len(short_NL) // 2
    bounds = short_NL[:half] @ short_NL[half:].T
    share = float((bounds >= threshold).mean()) if bounds.size else 1.0
    return _bound_ns(short_NL.shape[1] - 1) + share * SCORE_NS


def _bound_ns(lead: int) -> float:
    return PAIR_NS + PAIR_DIMENSION_NS * (lead + 1)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """In float64."""
    wide = vectors.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


def leading(unit: np.ndarray, basis: np.ndarray, lead: int) -> np.ndarray:
    """The leading dimensions of turned rows, and the length of the rest as one more."""
    turned = unit @ basis[:, :lead]
    whole = np.einsum("nd,nd->n", unit, unit)
    rest = np.maximum(whole - np.einsum("nl,nl->n", turned, turned), 0.0)
    return np.hstack([turned, np.sqrt(rest + REST_SLACK)[:, None]]).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one side of a join."""

    short: np.ndarray  # (N, L + 1) float32
    vectors: np.ndarray  # (N, D) float32, as decoded

    @classmethod
    def of(cls, vectors: np.ndarray, turn: Turn) -> "Block":
        some = (slice(first, first + TILE) for first in range(0, max(1, len(vectors)), TILE))
        short = [leading(unit_rows(vectors[s]), turn.basis, turn.num_leading) for s in some]
        return cls(np.concatenate(short), np.ascontiguousarray(vectors, np.float32))

    def __len__(self) -> int:
        return len(self.short)


def cosines(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    """Of paired rows: products and norms in float64, rounded to float32; equal rows give 1."""
    wide_a, wide_b = a_ND.astype(np.float64), b_ND.astype(np.float64)
    norms = np.einsum("nd,nd->n", wide_a, wide_a) * np.einsum("nd,nd->n", wide_b, wide_b)
    cos = np.einsum("nd,nd->n", wide_a, wide_b) / np.sqrt(norms)
    return np.clip(cos, -1.0, 1.0).astype(np.float32)


def joined(a: Block, b: Block, threshold: float, *, is_same: bool = False) -> Iterator[Edges]:
    """Pairs of two blocks, tile by tile; of a block with itself each unordered pair once."""
    # Rounding of coordinates and of a sum of L + 1 products can take this much off a bound.
    floor = np.float32(threshold) - (a.short.shape[1] + 4) * FLOAT32_STEP
    for first_a in range(0, len(a), TILE):
        tile_a = slice(first_a, first_a + TILE)
        for first_b in range(first_a if is_same else 0, len(b), TILE):
            tile_b = slice(first_b, first_b + TILE)
            bounds = a.short[tile_a] @ b.short[tile_b].T
            is_diagonal = is_same and first_a == first_b
            for rows_a, rows_b in _candidates(bounds, floor, a, b, tile_a, tile_b):
                if is_diagonal:
                    upper = rows_a < rows_b
                    rows_a, rows_b = rows_a[upper], rows_b[upper]  # noqa: PLW2901
                yield from _scored(a, b, rows_a, rows_b, threshold)


def _candidates(
    bounds: np.ndarray, floor: float, a: Block, b: Block, tile_a: slice, tile_b: slice
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of a tile that may reach the threshold."""
    flat = np.flatnonzero(bounds.reshape(-1) >= floor)
    if len(flat) > DENSE_SHARE * bounds.size:
        full_a, full_b = (unit_rows(side) for side in (a.vectors[tile_a], b.vectors[tile_b]))
        cos = full_a @ full_b.T
        flat = np.flatnonzero(cos.reshape(-1) >= floor)
    if len(flat):
        width = bounds.shape[1]
        yield flat // width + tile_a.start, flat % width + tile_b.start


def _scored(
    a: Block, b: Block, rows_a: np.ndarray, rows_b: np.ndarray, threshold: float
) -> Iterator[Edges]:
    for first in range(0, len(rows_a), SCORED_PAIRS):
        some_a, some_b = (rows[first : first + SCORED_PAIRS] for rows in (rows_a, rows_b))
        near = _may_reach(a.vectors, b.vectors, some_a, some_b, threshold)
        some_a, some_b = some_a[near], some_b[near]
        cos = cosines(a.vectors[some_a], b.vectors[some_b])
        is_edge = cos >= np.float32(threshold)
        if is_edge.any():
            yield Edges(some_a[is_edge], some_b[is_edge], cos[is_edge])


def _may_reach(
    vectors_a: np.ndarray, vectors_b: np.ndarray, a: np.ndarray, b: np.ndarray, threshold: float
) -> np.ndarray:
    """Which pairs are worth a score in float64: 300 ns in float32 instead of 700."""
    own, other = np.take(vectors_a, a, 0), np.take(vectors_b, b, 0)
    with np.errstate(all="ignore"):  # lengths that overflow give no number, and are not ruled out
        length, other_length = (np.sqrt(np.einsum("nd,nd->n", x, x)) for x in (own, other))
        cos = np.einsum("nd,nd->n", own, other) / length / other_length
    slack = 2 * (own.shape[1] + 8) * FLOAT32_STEP
    return ~(cos < np.float32(threshold) - slack)
