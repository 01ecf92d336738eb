"""Rows that share an IVF cell -> most edges, and a certificate of how many.

A first round joins the rows of each cell. A sample of rows, searched exactly, then gives the margin
at which rows must probe other cells for the wanted recall, of all pairs and of each band of
similarity; the next round joins those probes. A fresh sample certifies the result. If the recall is
not reached, the margin grows and a larger fresh sample is drawn, with half of the remaining error
probability: all attempts together err no more often than one would.
"""

import logging

import numpy as np
import ray

from pipelines.artifacts.errors import TargetMissed
from pipelines.pairs import blocks as plan
from pipelines.pairs.exact import JoinResult, edge_parts
from pipelines.pairs.exact_check import ExactCheck
from pipelines.pairs.setup import JoinSetup
from pipelines.runtime.progress import poll_progress, progress
from pipelines.runtime.tasks import in_order
from sbert_core.arrays import BoolArray, Int64Array
from sbert_core.join.certificate import Population, VectorSample, draw_sample
from sbert_core.join.edges import EdgePart, is_written
from sbert_core.join.ivf import (
    NO_PROBES,
    ROWS_PER_CELL,
    IvfPartition,
    default_num_cells,
)
from sbert_core.vectors.table import VectorTable
from workers.pairs.ivf import (
    CellLayout,
    ExactPairs,
    ProbeRound,
    ShuffleFiles,
    cell_edges_name,
    count_edges,
    edges_touching,
    find_exact_pairs,
    join_cells,
    num_shuffles,
    read_projections,
    read_sampled_rows,
    shuffle_name,
    shuffle_rows,
)
from workers.pairs.join_job import BlockSpec

log = logging.getLogger(__name__)

GROUP_ROWS = 8192  # assigned to the cells of one task; rows that probe them come on top
TUNING_ROWS = 4096
CERTIFIED_ROWS = 8192
ATTEMPTS = 5
ALPHA = 0.05
MAX_PARTS = 64


class IvfJoin:
    """One approximate join over distinct rows: those of a, then those of b.

    recall: to be certified.
    """

    def __init__(self, setup: JoinSetup, recall: float, seed: int) -> None:
        self.setup = setup
        self.job = setup.job
        self.recall = recall
        self.seed = seed
        self.starts = plan.part_starts(setup.blocks_a, MAX_PARTS)
        self.first_a = setup.groups_a.first
        self.first_b = setup.groups_b.first
        self.offset_b = 0 if self.job.is_self else len(self.first_a)
        self.names: list[str] = []
        self.layout = self._learn_layout()
        self._layout_ref: ray.ObjectRef = ray.put(self.layout)
        self._groups_ref: ray.ObjectRef = ray.put(setup.written_groups)

    def run(self) -> JoinResult:
        """Join until the recall is certified; TargetMissed if it is not after some attempts."""
        self._join(ProbeRound(0, 0.0, 0.0))
        population, bands = self._count_edges()
        check = self._check_sample(population, draw_sample(population, TUNING_ROWS, (self.seed, 0)))
        margin, num_sampled = NO_PROBES, CERTIFIED_ROWS
        for attempt in range(1, ATTEMPTS + 1):
            aim = 1 - (1 - self.recall) / 2**attempt
            wider = check.required_margin(aim, margin)
            if wider > max(margin, 0.0):
                self._join(ProbeRound(attempt, margin, wider))
                margin = wider
                population, bands = self._count_edges()
            sample = draw_sample(population, num_sampled, (self.seed, attempt))
            check = self._check_sample(population, sample)
            alpha, num_cells = ALPHA / 2**attempt, self.layout.cells.num_cells
            certificate = check.certify(bands, alpha, max(margin, 0.0), num_cells)
            if certificate.reaches(self.recall):
                return JoinResult(
                    starts=self.starts,
                    names=[self.names] * len(self.starts),
                    num_pairs=certificate.found + self.setup.num_equal_pairs,
                    certificate=certificate,
                )
            log.info("attempt %d: %s; probing further", attempt, certificate.describe())
            num_sampled *= 2
        raise TargetMissed(
            f"recall {self.recall:g} was not reached: {certificate.describe()}; lower --recall or "
            "use --method exact"
        )

    # -- rounds ----------------------------------------------------------------------------------

    def _learn_layout(self) -> CellLayout:
        """Cells from a sample, in groups of about as many rows."""
        number = default_num_cells(
            len(self.first_a) + (0 if self.job.is_self else len(self.first_b))
        )
        blocks = self.setup.all_blocks
        total = sum(block.size for block in blocks)
        rng = np.random.default_rng((self.seed, 1))
        wanted = min(total, number * ROWS_PER_CELL)
        chosen = np.sort(rng.choice(total, wanted, replace=False))
        ends = np.cumsum([block.size for block in blocks])
        calls = []
        for block, end in zip(blocks, ends.tolist(), strict=True):
            own = chosen[(chosen >= end - block.size) & (chosen < end)] - (end - block.size)
            calls.append((self.job, block, own))
        sample = np.concatenate(in_order(read_projections, calls))
        cells = IvfPartition.fit(sample, number, self.seed)
        count = np.bincount(cells.assign(sample), minlength=number) * (total / max(1, wanted))
        group = (np.cumsum(count) - count) // GROUP_ROWS
        _, group = np.unique(group, return_inverse=True)
        return CellLayout(cells, group, self.setup.rotation.basis.shape[0])

    def _join(self, probe: ProbeRound) -> None:
        """Send rows to their home or probed cells, and join each cell."""
        job = self.job
        blocks = self.setup.all_blocks
        last = [shuffle_name(job, probe, block, num_shuffles(block) - 1) for block in blocks]
        todo = [b for b, name in zip(blocks, last, strict=True) if job.storage.stat(name) is None]
        in_order(shuffle_rows, [(job, block, self._layout_ref, probe) for block in todo])
        files = self._files(probe)
        groups = range(self.layout.num_groups)
        names = [cell_edges_name(job, probe, group) for group in groups]
        left = [g for g in groups if not is_written(job.storage, names[g])]
        by = f"{len(left)} groups of cells, {'home' if probe.is_home else 'probed'}"
        with progress("cells", len(left), by=by, unit="groups") as advance:
            with poll_progress(job.run, advance):
                calls = [(job, self._layout_ref, g, probe, files, self.starts) for g in left]
                in_order(join_cells, calls)
        self.names += names

    def _files(self, probe: ProbeRound) -> ShuffleFiles:
        home = ProbeRound(0, 0.0, 0.0)

        def names(blocks: list[BlockSpec], own: ProbeRound) -> list[str]:
            return [
                shuffle_name(self.job, own, block, number)
                for block in blocks
                for number in range(num_shuffles(block))
            ]

        blocks_a, blocks_b = self.setup.blocks_a, self.setup.blocks_b
        return ShuffleFiles(
            homes_a=names(blocks_a, home),
            homes_b=names(blocks_b, home),
            probes_a=names(blocks_a, probe),
            probes_b=names(blocks_b, probe),
        )

    # -- pairs found and pairs missed ------------------------------------------------------------

    def _count_edges(self) -> tuple[Population, Int64Array]:
        """Written partners found for each distinct row, and written pairs by band."""
        calls = [(self.job, part, self._groups_ref) for part in self._parts]
        found = in_order(count_edges, calls)
        sides = [self.job.a] if self.job.is_self else [self.job.a, self.job.b]
        size = [self.setup.groups[side.name].collapse_large().count for side in sides]
        degree = np.zeros(sum(map(len, size)), np.int64)
        for counts in found:
            degree[self._place_a(counts.a)] += counts.count_a
            degree[self._place_b(counts.b)] += counts.count_b
        bands = np.sum([counts.bands for counts in found], axis=0)
        return Population(np.concatenate(size), degree), bands

    @property
    def _parts(self) -> list[EdgePart]:
        return edge_parts([self.names] * len(self.starts))

    def _place_a(self, rows: Int64Array) -> Int64Array:
        return np.searchsorted(self.first_a, rows)

    def _place_b(self, rows: Int64Array) -> Int64Array:
        return np.searchsorted(self.first_b, rows) + self.offset_b

    def _check_sample(self, population: Population, sample: VectorSample) -> ExactCheck:
        """Every true pair of the sampled rows, and whether it is among the edges."""
        is_a = sample.rows < len(self.first_a)
        rows_a = self.first_a[sample.rows[is_a]]
        rows_b = rows_a if self.job.is_self else self.first_b[sample.rows[~is_a] - self.offset_b]
        searches = [(self.job.a, rows_a, self.job.b)]
        if not self.job.is_self:
            searches.append((self.job.b, rows_b, self.job.a))
        found: list[ExactPairs] = []
        for own, rows, other in searches:
            found += self._search_exactly(own, rows, other)
        row, partner, cos, margin = (
            np.concatenate([getattr(part, name) for part in found])
            for name in ("row", "partner", "cos", "margin")
        )
        pairs = ExactPairs(row, partner, cos, margin)
        is_found = self._is_found(pairs, rows_a, rows_b)
        return ExactCheck(population, sample, pairs, is_found, self.job.threshold)

    def _search_exactly(
        self, own: VectorTable, rows: Int64Array, other: VectorTable
    ) -> list[ExactPairs]:
        """Partners of some rows of one side among all rows of the other, by place."""
        taken = in_order(
            read_sampled_rows, [(self.job, block, rows) for block in self.setup.blocks[own.name]]
        )
        sample = ray.put(tuple(np.concatenate(parts) for parts in zip(*taken, strict=True)))
        calls = [
            (self.job, block, sample, own.name == other.name, self.layout.cells)
            for block in self.setup.blocks[other.name]
        ]
        place = {self.job.b.name: self._place_b, self.job.a.name: self._place_a}
        return [
            ExactPairs(place[own.name](f.row), place[other.name](f.partner), f.cos, f.margin)
            for f in in_order(find_exact_pairs, calls)
        ]

    def _is_found(self, pairs: ExactPairs, rows_a: Int64Array, rows_b: Int64Array) -> BoolArray:
        calls = [(self.job, part, rows_a, rows_b) for part in self._parts]
        edges = np.concatenate(in_order(edges_touching, calls))
        known = self._keys(self._place_a(edges["a"]), self._place_b(edges["b"]))
        low, high = np.minimum(pairs.row, pairs.partner), np.maximum(pairs.row, pairs.partner)
        return np.isin(self._keys(low, high), known)

    def _keys(self, low: Int64Array, high: Int64Array) -> Int64Array:
        """One number for a pair of places, the smaller first."""
        return low * np.int64(self.offset_b + len(self.first_b)) + high
