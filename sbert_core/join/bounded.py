"""All pairs of rows whose cosine reaches a threshold (a bounded exact join).

In:  vectors as they are stored (decoded, of any length).
Out: every pair with cos >= threshold: none missing, no cap per row.

Vectors are rotated onto the principal components of a sample, so that their leading dimensions
hold most of the energy. The product of two leading parts plus the product of the norms of the
residuals is never below the cosine (Cauchy-Schwarz), so one short product rules out nearly all
pairs; the others are scored in float64.

Shapes: N rows, D dimensions, L leading ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

TILE_ROWS = 512  # 1 MB of bounds for two tiles, which a core keeps in its cache
LEADING_CHOICES = (16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512, 768)
# Costs on one core (Zen 4), to weigh dimensions against full scores; results do not depend on them.
PAIR_NS, PAIR_DIMENSION_NS, SCORE_NS = 0.4, 0.0185, 300.0
DENSE_SHARE = 1 / 256  # of a tile's pairs; above it one full product is cheaper than picking
SCORED_PAIRS = 16_384  # at a time: two copies in float64 take 100 MB at 384 dimensions
FLOAT32_STEP = 2.0**-23
RESIDUAL_SLACK = 1e-14  # rounding error of a difference of two sums near 1 in float64


@dataclass(frozen=True, slots=True)
class Edges:
    """Pairs of row numbers, `a` of one side and `b` of the other, and their cosines."""

    a: np.ndarray  # int64 as the join finds them, int32 as they are stored
    b: np.ndarray
    cos: np.ndarray  # float32

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True)
class PcaRotation:
    """Principal components of a sample, largest energy first, and how many of them lead."""

    basis: np.ndarray  # (D, D) float64, one direction a column
    num_leading: int
    pair_ns: float  # estimated cost of one pair

    @classmethod
    def fit(cls, sample_ND: np.ndarray, threshold: float) -> "PcaRotation":
        """Rotate onto the components of a sample; choose the number that makes a join cheapest.

        threshold: of the join. The choice affects the speed alone, never the pairs found.
        """
        unit = normalize_rows(sample_ND)
        _, basis = np.linalg.eigh(unit.T @ unit)
        basis = basis[:, ::-1].copy()
        dim = unit.shape[1]
        choices = [lead for lead in LEADING_CHOICES if lead < dim] or [dim]
        best, least = choices[0], np.inf
        for lead in choices:
            if _bound_ns(lead) >= least:  # more dimensions cost more than they can save
                break
            cost = _estimate_pair_ns(project(unit, basis, lead), threshold)
            if cost < least:
                best, least = lead, cost
        return cls(basis, best, least)


def _estimate_pair_ns(projected_NL: np.ndarray, threshold: float) -> float:
    """Nanoseconds a pair takes, from pairs between the two halves of a sample."""
    half = len(projected_NL) // 2
    bounds = projected_NL[:half] @ projected_NL[half:].T
    share = float((bounds >= threshold).mean()) if bounds.size else 1.0
    return _bound_ns(projected_NL.shape[1] - 1) + share * SCORE_NS


def _bound_ns(num_leading: int) -> float:
    return PAIR_NS + PAIR_DIMENSION_NS * (num_leading + 1)


def normalize_rows(vectors_ND: np.ndarray) -> np.ndarray:
    """Rows scaled to length one, in float64."""
    wide = vectors_ND.astype(np.float64)
    unit: np.ndarray = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    return unit


def project(unit_ND: np.ndarray, basis_DD: np.ndarray, num_leading: int) -> np.ndarray:
    """Leading coordinates of unit rows, and the norm of the residual as one more.

    Returns (N, L + 1) float32. The inner product of two such rows bounds their cosine from above.
    """
    leading = unit_ND @ basis_DD[:, :num_leading]
    whole = np.einsum("nd,nd->n", unit_ND, unit_ND)
    residual = np.maximum(whole - np.einsum("nl,nl->n", leading, leading), 0.0)
    return np.hstack([leading, np.sqrt(residual + RESIDUAL_SLACK)[:, None]]).astype(np.float32)


@dataclass(frozen=True, slots=True)
class JoinBlock:
    """Rows of one side of a join: projections for bounds, vectors for scores."""

    projected: np.ndarray  # (N, L + 1) float32
    vectors: np.ndarray  # (N, D) float32, as decoded

    @classmethod
    def build(cls, vectors_ND: np.ndarray, rotation: PcaRotation) -> "JoinBlock":
        """Project rows, a tile at a time: float64 copies of a whole block would double memory."""
        tiles = (slice(at, at + TILE_ROWS) for at in range(0, max(1, len(vectors_ND)), TILE_ROWS))
        projected = [
            project(normalize_rows(vectors_ND[tile]), rotation.basis, rotation.num_leading)
            for tile in tiles
        ]
        return cls(np.concatenate(projected), np.ascontiguousarray(vectors_ND, np.float32))

    def __len__(self) -> int:
        return len(self.projected)


def paired_cosines(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    """Cosine of each row of a with the same row of b.

    Products and norms in float64, rounded to float32; equal rows give 1.
    """
    wide_a, wide_b = a_ND.astype(np.float64), b_ND.astype(np.float64)
    norms = np.einsum("nd,nd->n", wide_a, wide_a) * np.einsum("nd,nd->n", wide_b, wide_b)
    cos: np.ndarray = np.einsum("nd,nd->n", wide_a, wide_b) / np.sqrt(norms)
    return np.asarray(np.clip(cos, -1.0, 1.0), np.float32)


def cosine_join(
    a: JoinBlock, b: JoinBlock, threshold: float, *, is_same: bool = False
) -> Iterator[Edges]:
    """Every pair of two blocks with cos >= threshold, tile by tile, as places in the blocks.

    is_same: b is a; each unordered pair comes once.
    """
    # Rounding of coordinates and of a sum of L + 1 products can take this much off a bound.
    floor = np.float32(threshold) - (a.projected.shape[1] + 4) * FLOAT32_STEP
    for first_a in range(0, len(a), TILE_ROWS):
        tile_a = slice(first_a, first_a + TILE_ROWS)
        for first_b in range(first_a if is_same else 0, len(b), TILE_ROWS):
            tile_b = slice(first_b, first_b + TILE_ROWS)
            bounds = a.projected[tile_a] @ b.projected[tile_b].T
            is_diagonal = is_same and first_a == first_b
            for rows_a, rows_b in _candidate_pairs(bounds, floor, a, b, tile_a, tile_b):
                if is_diagonal:
                    upper = rows_a < rows_b
                    rows_a, rows_b = rows_a[upper], rows_b[upper]  # noqa: PLW2901
                yield from _score_candidates(a, b, rows_a, rows_b, threshold)


def _candidate_pairs(
    bounds: np.ndarray, floor: float, a: JoinBlock, b: JoinBlock, tile_a: slice, tile_b: slice
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places of the pairs of two tiles whose bound reaches the floor."""
    flat = np.flatnonzero(bounds.reshape(-1) >= floor)
    if len(flat) > DENSE_SHARE * bounds.size:
        full_a, full_b = (normalize_rows(side) for side in (a.vectors[tile_a], b.vectors[tile_b]))
        cos = full_a @ full_b.T
        flat = np.flatnonzero(cos.reshape(-1) >= floor)
    if len(flat):
        width = bounds.shape[1]
        yield flat // width + tile_a.start, flat % width + tile_b.start


def _score_candidates(
    a: JoinBlock, b: JoinBlock, rows_a: np.ndarray, rows_b: np.ndarray, threshold: float
) -> Iterator[Edges]:
    """Candidates that reach the threshold, with exact cosines."""
    for first in range(0, len(rows_a), SCORED_PAIRS):
        some_a, some_b = (rows[first : first + SCORED_PAIRS] for rows in (rows_a, rows_b))
        near = _prefilter_float32(a.vectors, b.vectors, some_a, some_b, threshold)
        some_a, some_b = some_a[near], some_b[near]
        cos = paired_cosines(a.vectors[some_a], b.vectors[some_b])
        is_edge = cos >= np.float32(threshold)
        if is_edge.any():
            yield Edges(some_a[is_edge], some_b[is_edge], cos[is_edge])


def _prefilter_float32(
    vectors_a: np.ndarray, vectors_b: np.ndarray, a: np.ndarray, b: np.ndarray, threshold: float
) -> np.ndarray:
    """Pairs worth a score in float64: 300 ns in float32 instead of 700."""
    own, other = np.take(vectors_a, a, 0), np.take(vectors_b, b, 0)
    with np.errstate(all="ignore"):  # norms that overflow give NaN, which is not ruled out
        norm, other_norm = (np.sqrt(np.einsum("nd,nd->n", x, x)) for x in (own, other))
        cos = np.einsum("nd,nd->n", own, other) / norm / other_norm
    slack = 2 * (own.shape[1] + 8) * FLOAT32_STEP
    is_near: np.ndarray = ~(cos < np.float32(threshold) - slack)
    return is_near
