"""Rows that share a cell -> most edges, and a certificate of how many.

A first round joins the rows of each cell. A sample of rows, looked up exactly, then says how far
over the borders rows must visit for the wanted recall, of all pairs and of each band of
similarity; the next round joins those visits. A fresh sample certifies the result. If it does not
reach what is wanted, rows visit further and a larger fresh sample is drawn, with half the chance of
error left to it: all attempts together err no more often than one would.
"""

import logging
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import ray

from pipelines.artifacts.certificate import reaches, summary_of
from pipelines.artifacts.errors import TargetMissed
from pipelines.pairs import blocks as plan
from pipelines.pairs.exact import Found
from pipelines.pairs.setup import Ground
from pipelines.runtime.progress import polled, progress
from pipelines.runtime.tasks import in_order
from sbert_core.join.certificate import (
    BAND_WIDTH,
    Missed,
    Population,
    Recall,
    Sample,
    bands_of,
    certify,
    draw_sample,
    pair_shares,
)
from sbert_core.join.edges import is_written
from sbert_core.join.ivf import NO_VISITS, ROWS_PER_CELL, Cells, margin_for, num_cells
from sbert_core.vectors.table import VectorTable
from workers.pairs.ivf import (
    Layout,
    Partners,
    Reach,
    Shuffled,
    cell_edges_name,
    count_found,
    found_among,
    join_cells,
    leading_rows,
    num_shuffles,
    settle_rows,
    shuffle_name,
    taken_rows,
    true_partners,
)
from workers.pairs.join_job import BlockOf

log = logging.getLogger(__name__)

GROUP_ROWS = 8192  # at home in the cells of one task; visitors come on top
TUNING_ROWS = 4096
CERTIFIED_ROWS = 8192
ATTEMPTS = 5
ALPHA = 0.05
MOST_PARTS = 64
TUNED_PAIRS = 25  # true pairs a band must have in the sample to tell how far its rows must visit
LEAST_WIDENING = 1e-4


@dataclass(frozen=True, slots=True)
class Looked:
    """True pairs of sampled rows; rows are counted among the distinct ones of both sides."""

    everyone: Population
    sample: Sample
    pairs: Partners
    is_found: np.ndarray


class CellJoin:
    """One approximate join. Its rows are the distinct ones: those of a, then those of b."""

    def __init__(self, ground: Ground, recall: float, seed: int) -> None:
        self.ground = ground
        self.job = ground.job
        self.recall = recall
        self.seed = seed
        self.starts = plan.part_starts(ground.blocks_a, MOST_PARTS)
        self.first_a = ground.alike[self.job.a.name].first
        self.first_b = ground.alike[self.job.b.name].first
        self.offset_b = 0 if self.job.is_self else len(self.first_a)
        self.names: list[str] = []
        self.layout = self._learned()
        self._shared: Any = ray.put(self.layout)
        self._alike = [ray.put(ground.alike[side.name]) for side in (self.job.a, self.job.b)]

    def run(self) -> Found:
        """Join until the target is certified.

        Raises TargetMissed if it is not after some attempts.
        """
        self._join(Reach(0, 0.0, 0.0))
        everyone, bands = self._counted()
        looked = self._looked_up(everyone, draw_sample(everyone, TUNING_ROWS, (self.seed, 0)))
        margin, number = NO_VISITS, CERTIFIED_ROWS
        for attempt in range(1, ATTEMPTS + 1):
            aim = 1 - (1 - self.recall) / 2**attempt
            wider = self._margin(looked, aim, margin)
            if wider > max(margin, 0.0):
                self._join(Reach(attempt, margin, wider))
                margin = wider
                everyone, bands = self._counted()
            sample = draw_sample(everyone, number, (self.seed, attempt))
            looked = self._looked_up(everyone, sample)
            certificate = self._certificate(looked, bands, ALPHA / 2**attempt)
            certificate |= {"margin": max(margin, 0.0), "cells": self.layout.cells.number}
            if reaches(certificate, self.recall):
                return Found(self.starts, [self.names] * len(self.starts), certificate)
            log.info("attempt %d: %s; visiting further", attempt, summary_of(certificate))
            number *= 2
        raise TargetMissed(
            f"recall {self.recall:g} was not reached: {summary_of(certificate)}; lower --recall or "
            "use --method exact"
        )

    # -- rounds ----------------------------------------------------------------------------------

    def _learned(self) -> Layout:
        """Cells from a sample, in groups of about as many rows."""
        number = num_cells(len(self.first_a) + (0 if self.job.is_self else len(self.first_b)))
        blocks = self.ground.all_blocks
        total = sum(block.size for block in blocks)
        rng = np.random.default_rng((self.seed, 1))
        wanted = min(total, number * ROWS_PER_CELL)
        chosen = np.sort(rng.choice(total, wanted, replace=False))
        ends = np.cumsum([block.size for block in blocks])
        calls = []
        for block, end in zip(blocks, ends.tolist(), strict=True):
            own = chosen[(chosen >= end - block.size) & (chosen < end)] - (end - block.size)
            calls.append((self.job, block, own))
        sample = np.concatenate(in_order(leading_rows, calls))
        cells = Cells.of(sample, number, self.seed)
        count = np.bincount(cells.homes(sample), minlength=number) * (total / max(1, wanted))
        group = (np.cumsum(count) - count) // GROUP_ROWS
        _, group = np.unique(group, return_inverse=True)
        return Layout(cells, group, self.ground.turn.basis.shape[0])

    def _join(self, reach: Reach) -> None:
        """Rows travel to their cells and meet there."""
        job = self.job
        blocks = self.ground.all_blocks
        last = [shuffle_name(job, reach, block, num_shuffles(block) - 1) for block in blocks]
        todo = [b for b, name in zip(blocks, last, strict=True) if job.storage.stat(name) is None]
        in_order(settle_rows, [(job, block, self._shared, reach) for block in todo])
        files = self._files(reach)
        groups = range(self.layout.num_groups)
        names = [cell_edges_name(job, reach, group) for group in groups]
        left = [g for g in groups if not is_written(job.storage, names[g])]
        by = f"{len(left)} groups of cells, {'visits' if reach.number else 'homes'}"
        with progress("cells", len(left), by=by, unit="groups") as advance:
            with polled(job.run, advance):
                calls = [(job, self._shared, g, reach, files, self.starts) for g in left]
                in_order(join_cells, calls)
        self.names += names

    def _files(self, reach: Reach) -> Shuffled:
        home = Reach(0, 0.0, 0.0)

        def names(blocks: list[BlockOf], own: Reach) -> list[str]:
            return [
                shuffle_name(self.job, own, block, number)
                for block in blocks
                for number in range(num_shuffles(block))
            ]

        blocks_a, blocks_b = self.ground.blocks_a, self.ground.blocks_b
        return Shuffled(
            homes_a=names(blocks_a, home),
            homes_b=names(blocks_b, home),
            visits_a=names(blocks_a, reach),
            visits_b=names(blocks_b, reach),
        )

    # -- what was found and what was not ---------------------------------------------------------

    def _counted(self) -> tuple[Population, np.ndarray]:
        """Written partners found for each distinct row, and written pairs by band."""
        total = len(self.starts)
        calls = [(self.job, self.names, part, total, *self._alike) for part in range(total)]
        found = in_order(count_found, calls)
        sides = [self.job.a] if self.job.is_self else [self.job.a, self.job.b]
        size = [self.ground.alike[side.name].representing().count for side in sides]
        degree = np.zeros(sum(map(len, size)), np.int64)
        for counts in found:
            degree[self._place_a(counts.a)] += counts.count_a
            degree[self._place_b(counts.b)] += counts.count_b
        bands = np.sum([counts.bands for counts in found], axis=0)
        return Population(np.concatenate(size), degree), bands

    def _place_a(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.first_a, rows)

    def _place_b(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.first_b, rows) + self.offset_b

    def _looked_up(self, everyone: Population, sample: Sample) -> Looked:
        """Every true pair of the sampled rows, and whether it is among the edges."""
        is_a = sample.rows < len(self.first_a)
        rows_a = self.first_a[sample.rows[is_a]]
        rows_b = rows_a if self.job.is_self else self.first_b[sample.rows[~is_a] - self.offset_b]
        asked = [(self.job.a, rows_a, self.job.b)]
        if not self.job.is_self:
            asked.append((self.job.b, rows_b, self.job.a))
        found: list[Partners] = []
        for own, rows, other in asked:
            found += self._partners(own, rows, other)
        row, partner, cos, margin = (
            np.concatenate([getattr(part, name) for part in found])
            for name in ("row", "partner", "cos", "margin")
        )
        pairs = Partners(row, partner, cos, margin)
        return Looked(everyone, sample, pairs, self._is_found(pairs, rows_a, rows_b))

    def _partners(self, own: VectorTable, rows: np.ndarray, other: VectorTable) -> list[Partners]:
        """Partners of some rows of one side among all rows of the other, by place."""
        taken = in_order(
            taken_rows, [(self.job, block, rows) for block in self.ground.blocks[own.name]]
        )
        sample = ray.put(tuple(np.concatenate(parts) for parts in zip(*taken, strict=True)))
        calls = [
            (self.job, block, sample, own.name == other.name, self.layout.cells)
            for block in self.ground.blocks[other.name]
        ]
        place = {self.job.b.name: self._place_b, self.job.a.name: self._place_a}
        return [
            Partners(place[own.name](f.row), place[other.name](f.partner), f.cos, f.margin)
            for f in in_order(true_partners, calls)
        ]

    def _is_found(self, pairs: Partners, rows_a: np.ndarray, rows_b: np.ndarray) -> np.ndarray:
        total = len(self.starts)
        calls = [(self.job, self.names, p, total, rows_a, rows_b) for p in range(total)]
        edges = np.concatenate(in_order(found_among, calls))
        known = self._keys(self._place_a(edges["a"]), self._place_b(edges["b"]))
        low, high = np.minimum(pairs.row, pairs.partner), np.maximum(pairs.row, pairs.partner)
        return np.isin(self._keys(low, high), known)

    def _keys(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """One number for a pair of places, the smaller first."""
        return low * np.int64(self.offset_b + len(self.first_b)) + high

    def _margin(self, looked: Looked, aim: float, margin: float) -> float:
        """The margin at which that share is found: of all pairs and of each band."""
        pairs = looked.pairs
        weight = pair_shares(looked.sample, looked.everyone, pairs.row, pairs.partner)
        # A pair may be missed although its margin says it is met: the home of a row between two
        # cells is a matter of the last bits. It asks for more, so that no attempt is like another.
        floor = max(margin, 0.0)
        needed = np.where(pairs.margin > floor, pairs.margin, 2 * floor + LEAST_WIDENING)
        needed[looked.is_found] = 0.0
        band = bands_of(pairs.cos, self.job.threshold)
        large = np.flatnonzero(np.bincount(band) >= TUNED_PAIRS).tolist()
        chosen = [np.ones(len(band), bool), *(band == number for number in large)]
        return max(margin_for(needed[own], weight[own], aim) for own in chosen)

    def _certificate(self, looked: Looked, bands: np.ndarray, alpha: float) -> dict[str, Any]:
        pairs, is_missed = looked.pairs, ~looked.is_found
        band = bands_of(pairs.cos, self.job.threshold)

        def recall(chosen: np.ndarray, num_found: int) -> Recall:
            lost = chosen & is_missed
            missed = Missed(row=pairs.row[lost], partner=pairs.partner[lost])
            return certify(
                looked.sample, looked.everyone, missed, num_found, int(chosen.sum()), alpha=alpha
            )

        everything = np.ones(len(band), bool)
        return {
            **asdict(recall(everything, int(bands.sum()))),
            "confidence": 1 - alpha,
            "rows_sampled": len(looked.sample.rows),
            "rows": len(looked.everyone.size),
            "bands": [
                {
                    "from": round(self.job.threshold + number * BAND_WIDTH, 6),
                    **asdict(recall(band == number, int(count))),
                }
                for number, count in enumerate(bands.tolist())
            ],
        }
