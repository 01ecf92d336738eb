"""What every join stands on: equal rows found, a basis chosen, blocks on disk.

In:  the vectors of one or two sides.
Out: Ground: for each side its groups of equal rows and its blocks, turned and written.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import ray

from pipelines.pairs import blocks as plan
from pipelines.runtime.tasks import in_order
from sbert_core.errors import InputRefused
from sbert_core.join.bounded import Block, Turn
from sbert_core.join.duplicates import Alike, vector_digests
from sbert_core.join.top_k import likely_cosine
from sbert_core.vectors.row_ranges import sampled
from sbert_core.vectors.table import VectorTable
from workers.pairs.exact import partner_counts
from workers.pairs.join_job import (
    BlockOf,
    JoinJob,
    is_block_written,
    part_digests,
    piece_rows,
    write_block,
)

log = logging.getLogger(__name__)

SAMPLED_ROWS = 4096
COUNTED_ROWS = 512


class TooManyEdges(InputRefused):
    """More pairs than allowed."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A join, ready to be carried out."""

    job: JoinJob
    alike: dict[str, Alike]
    turn: Turn
    blocks: dict[str, list[BlockOf]]

    @classmethod
    def of(
        cls,
        job: JoinJob,
        seed: int,
        *,
        max_edges: int | None = None,
        top_k: int | None = None,
        beside: Sequence[VectorTable] = (),
    ) -> "Ground":
        """beside: sides whose rows help to choose the basis."""
        sides = [job.a] if job.is_self else [job.a, job.b]
        alike = {side.name: Alike.of(digests_of(side)) for side in sides}
        sample = [_sampled(side, seed) for side in (*sides, *beside)]
        rows = np.concatenate([vectors for _, vectors in sample])
        floor = job.threshold if top_k is None else max(job.threshold, likely_cosine(rows, top_k))
        turn = Turn.of(rows, floor)
        blocks = {side.name: plan.blocks_of(side, alike[side.name]) for side in sides}
        ground = cls(job, alike, turn, blocks)
        ground._write_blocks()
        if max_edges is not None and top_k is None:
            ground._refuse_more(max_edges, *sample[0])
        return ground

    def with_each_of(self, other: VectorTable) -> "Ground":
        """The rows of a self-join with those of another side, which stand for themselves alone."""
        each = {other.name: Alike.each(other.num_rows)}
        return replace(self, job=replace(self.job, b=other), alike={**self.alike, **each})

    @property
    def blocks_a(self) -> list[BlockOf]:
        return self.blocks[self.job.a.name]

    @property
    def blocks_b(self) -> list[BlockOf]:
        return self.blocks[self.job.b.name]

    @property
    def all_blocks(self) -> list[BlockOf]:
        return [block for own in self.blocks.values() for block in own]

    @property
    def num_meetings(self) -> int:
        """Pairs of distinct vectors."""
        a, b = (len(self.alike[side.name].first) for side in (self.job.a, self.job.b))
        return a * (a - 1) // 2 if self.job.is_self else a * b

    @property
    def facts(self) -> dict[str, object]:
        """What the manifest says of the rows."""
        return {
            "leading": self.turn.num_leading,
            "rows": {name: int(own.count.sum()) for name, own in self.alike.items()},
            "distinct": {name: len(own.first) for name, own in self.alike.items()},
            "large_groups": {name: len(own.large()) for name, own in self.alike.items()},
        }

    @property
    def exact_core_seconds(self) -> float:
        """What looking at all of them would cost, about."""
        return self.num_meetings * self.turn.pair_ns / 1e9

    def _write_blocks(self) -> None:
        basis = ray.put(self.turn)
        todo = [block for block in self.all_blocks if not is_block_written(self.job, block)]
        in_order(write_block, [(self.job, block, basis) for block in todo])

    def _refuse_more(self, max_edges: int, ids: list, vectors: np.ndarray) -> None:
        """Count the partners of some rows exactly, and stop if all rows have too many."""
        few = slice(None, COUNTED_ROWS)
        sample = Block.of(vectors[few], self.turn)
        calls = [(self.job, block, sample) for block in self.blocks_b]
        counts = sum(in_order(partner_counts, calls), np.zeros(len(sample), np.int64))
        counts -= self.job.is_self  # a row is no partner of itself
        own = self.alike[self.job.a.name]
        number = float(counts.mean()) * len(own.first)
        if self.job.is_self:
            number = number / 2 + own.num_pairs
        log.info("about %s pairs expected, from %d rows", f"{number:,.0f}", len(sample))
        if number > max_edges:
            densest = int(counts.argmax())
            raise TooManyEdges(
                f"about {number:,.0f} pairs reach {self.job.threshold:g}, more than --max-edges "
                f"{max_edges:,}; the row with id {ids[densest]!r} alone has about "
                f"{counts[densest]:,}: raise the threshold, remove that group or allow more edges"
            )


def digests_of(side: VectorTable) -> np.ndarray:
    """What tells equal vectors, for every row of a side."""
    found = in_order(part_digests, [(side, piece) for piece in side.pieces])
    return np.concatenate([vector_digests(np.empty((0, 1), np.float32)), *found])


def _sampled(side: VectorTable, seed: int) -> tuple[list, np.ndarray]:
    """Ids and vectors of rows drawn at random, in random order."""
    chosen = sampled(side.pieces, SAMPLED_ROWS, (seed,))
    found = in_order(piece_rows, [(side, piece) for piece in chosen])
    ids = [i for own, _ in found for i in own]
    vectors = np.concatenate([vectors for _, vectors in found])
    order = np.random.default_rng(seed).permutation(len(ids))
    return [ids[n] for n in order.tolist()], vectors[order]
