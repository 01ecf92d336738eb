"""What every join begins with: equal rows found, a rotation chosen, blocks on disk.

In:  the vectors of one or two sides.
Out: JoinSetup: for each side its groups of equal rows and its blocks, projected and written.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import ray

from pipelines.artifacts.certificate import Certificate
from pipelines.artifacts.kinds import PairsMetrics
from pipelines.pairs import blocks as plan
from pipelines.runtime.tasks import in_order
from sbert_core.arrays import BytesArray
from sbert_core.errors import InvalidInput
from sbert_core.join.bounded import JoinBlock, PcaRotation
from sbert_core.join.duplicates import DuplicateGroups, digest_vectors
from sbert_core.join.top_k import estimate_kth_cosine
from sbert_core.vectors.row_ranges import sample_rows
from sbert_core.vectors.table import VectorTable
from workers.pairs.exact import count_partners
from workers.pairs.join_job import (
    BlockSpec,
    JoinGroups,
    JoinJob,
    SampledRows,
    digest_part,
    is_block_written,
    read_sample,
    write_block,
)

log = logging.getLogger(__name__)

SAMPLED_ROWS = 4096  # of a side, to choose the rotation
COUNTED_ROWS = 512  # of those, to estimate the number of pairs


class TooManyEdges(InvalidInput):
    """More pairs than `--max-edges`."""


@dataclass(frozen=True, slots=True)
class JoinSetup:
    """A join that is ready to run. groups and blocks: by name of the side."""

    job: JoinJob
    groups: dict[str, DuplicateGroups]
    rotation: PcaRotation
    blocks: dict[str, list[BlockSpec]]

    @classmethod
    def prepare(
        cls,
        job: JoinJob,
        seed: int,
        *,
        max_edges: int | None = None,
        top_k: int | None = None,
        also_sample: Sequence[VectorTable] = (),
    ) -> "JoinSetup":
        """Run the tasks that come before a join: digests, a sample, blocks.

        also_sample: sides that are not joined here, whose rows help to choose the rotation.
        TooManyEdges if a sample shows that there are more than `max_edges` pairs.
        """
        sides = [job.a] if job.is_self else [job.a, job.b]
        groups = {side.name: DuplicateGroups.from_digests(digest_rows(side)) for side in sides}
        samples = [_draw_sample(side, seed) for side in (*sides, *also_sample)]
        rows = np.concatenate([sample.vectors for sample in samples])
        floor = job.threshold
        if top_k is not None:
            floor = max(floor, estimate_kth_cosine(rows, top_k))
        rotation = PcaRotation.fit(rows, floor)
        blocks = {side.name: plan.plan_blocks(side, groups[side.name]) for side in sides}
        setup = cls(job, groups, rotation, blocks)
        setup._write_blocks()
        if max_edges is not None and top_k is None:
            setup._refuse_more(max_edges, samples[0])
        return setup

    def against(self, other: VectorTable) -> "JoinSetup":
        """The rows of this self-join against another side, whose rows are not grouped."""
        single = {other.name: DuplicateGroups.singletons(other.num_rows)}
        return replace(self, job=replace(self.job, b=other), groups={**self.groups, **single})

    @property
    def groups_a(self) -> DuplicateGroups:
        """Groups of equal rows of side a."""
        return self.groups[self.job.a.name]

    @property
    def groups_b(self) -> DuplicateGroups:
        """Groups of equal rows of side b; those of a in a self-join."""
        return self.groups[self.job.b.name]

    @property
    def written_groups(self) -> JoinGroups:
        """Groups as edges are expanded: large ones keep their first row alone."""
        return JoinGroups(self.groups_a, self.groups_b).collapse_large()

    @property
    def blocks_a(self) -> list[BlockSpec]:
        """Blocks of side a."""
        return self.blocks[self.job.a.name]

    @property
    def blocks_b(self) -> list[BlockSpec]:
        """Blocks of side b; those of a in a self-join."""
        return self.blocks[self.job.b.name]

    @property
    def all_blocks(self) -> list[BlockSpec]:
        """Blocks of both sides, each once."""
        return [block for own in self.blocks.values() for block in own]

    @property
    def num_equal_pairs(self) -> int:
        """Pairs of rows with equal vectors that a self-join writes; they need no search."""
        return self.groups_a.num_pairs if self.job.is_self else 0

    @property
    def num_comparisons(self) -> int:
        """Pairs of distinct vectors."""
        a, b = len(self.groups_a.first), len(self.groups_b.first)
        return a * (a - 1) // 2 if self.job.is_self else a * b

    @property
    def exact_core_seconds(self) -> float:
        """Estimated cost of comparing them all."""
        return self.num_comparisons * self.rotation.pair_ns / 1e9

    def metrics(self, certificate: Certificate | None) -> PairsMetrics:
        """What the manifest states of the rows. certificate: of an approximate join."""
        groups = self.groups.items()
        return PairsMetrics(
            leading=self.rotation.num_leading,
            rows={name: int(own.count.sum()) for name, own in groups},
            distinct={name: len(own.first) for name, own in groups},
            large_groups={name: len(own.large_groups()) for name, own in groups},
            certificate=certificate,
            grown=None,
        )

    def _write_blocks(self) -> None:
        rotation = ray.put(self.rotation)
        todo = [block for block in self.all_blocks if not is_block_written(self.job, block)]
        in_order(write_block, [(self.job, block, rotation) for block in todo])

    def _refuse_more(self, max_edges: int, sample: SampledRows) -> None:
        """Count the partners of some rows exactly; stop if that makes too many for all rows."""
        few = JoinBlock.build(sample.vectors[:COUNTED_ROWS], self.rotation)
        calls = [(self.job, block, few) for block in self.blocks_b]
        counts = np.sum([np.zeros(len(few), np.int64), *in_order(count_partners, calls)], axis=0)
        counts -= self.job.is_self  # every row also reaches itself
        number = float(counts.mean()) * len(self.groups_a.first)
        if self.job.is_self:
            number = number / 2 + self.num_equal_pairs
        log.info("about %s pairs expected, from %d rows", f"{number:,.0f}", len(few))
        if number > max_edges:
            densest = int(counts.argmax())
            raise TooManyEdges(
                f"about {number:,.0f} pairs reach {self.job.threshold:g}, more than --max-edges "
                f"{max_edges:,}; the row with id {sample.ids[densest]!r} alone has about "
                f"{counts[densest]:,}: raise the threshold, remove that group or allow more edges"
            )


def digest_rows(side: VectorTable) -> BytesArray:
    """Digests of the vectors of all rows of a side; equal vectors have equal ones."""
    found = in_order(digest_part, [(side, piece) for piece in side.row_ranges])
    return np.concatenate([digest_vectors(np.empty((0, 1), np.float32)), *found])


def _draw_sample(side: VectorTable, seed: int) -> SampledRows:
    """Rows drawn at random, in random order."""
    chosen = sample_rows(side.row_ranges, SAMPLED_ROWS, (seed,))
    found = in_order(read_sample, [(side, piece) for piece in chosen])
    ids = [i for sample in found for i in sample.ids]
    vectors = np.concatenate([sample.vectors for sample in found])
    order = np.random.default_rng(seed).permutation(len(ids))
    return SampledRows([ids[n] for n in order.tolist()], vectors[order])
