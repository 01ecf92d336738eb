"""Rows that share a cell -> most edges, and a certificate of how many.

A first round joins the rows of each cell. A sample of rows, looked up exactly, then says how far
over the borders rows must visit for the wanted recall; the next round joins those visits. A fresh
sample certifies the result. If it does not reach what is wanted, rows visit further and a larger
fresh sample is drawn, with half the chance of error left to it: all attempts together err no more
often than one would.
"""

import json
import logging
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import ray

from pipelines.artifacts import TargetMissed
from pipelines.joining import plan
from pipelines.joining.exact import Found
from pipelines.joining.ground import Ground
from pipelines.progress import polled, progress
from pipelines.ray_tasks import in_order
from sbert_core.neighbours.cells import ROWS_PER_CELL, Cells, margin_for, num_cells
from sbert_core.neighbours.certificate import (
    BAND_WIDTH,
    Missed,
    Recall,
    Sample,
    bands_of,
    certified,
    pair_shares,
    sampled_rows,
)
from sbert_core.neighbours.edges import is_written
from workers.cell_join import (
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
from workers.join_blocks import BlockOf, Side

log = logging.getLogger(__name__)

GROUP_ROWS = 8192  # at home in the cells of one task; visitors come on top
TUNING_ROWS = 4096
CERTIFIED_ROWS = 8192
ATTEMPTS = 5
ALPHA = 0.05
MOST_PARTS = 64
BAND_PAIRS = 100  # true pairs a band must have in the sample to be held to the target


@dataclass(frozen=True, slots=True)
class Looked:
    """True pairs of sampled rows; rows are counted among the distinct ones of both sides."""

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

    def run(self) -> Found:
        self._join(Reach(0, 0.0, 0.0))
        degree, bands = self._counted()
        looked = self._looked_up(sampled_rows(degree, TUNING_ROWS, (self.seed, 0)))
        margin, number = 0.0, CERTIFIED_ROWS
        for attempt in range(1, ATTEMPTS + 1):
            aim = 1 - (1 - self.recall) / 2**attempt
            wider = self._margin(looked, degree, aim)
            if wider > margin:
                self._join(Reach(attempt, margin, wider))
                margin = wider
                degree, bands = self._counted()
            looked = self._looked_up(sampled_rows(degree, number, (self.seed, attempt)))
            alpha = ALPHA / 2**attempt
            certificate = self._certificate(looked, degree, bands, alpha)
            certificate |= {"margin": margin, "cells": self.layout.cells.number}
            if _reaches(certificate, self.recall):
                return Found(self.starts, [self.names] * len(self.starts), certificate)
            log.info("attempt %d: %s; visiting further", attempt, _said(certificate))
            number *= 2
        raise TargetMissed(
            f"recall {self.recall:g} was not reached: {_said(certificate)}; lower --recall or use "
            "--method exact"
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

    def _counted(self) -> tuple[np.ndarray, np.ndarray]:
        """Partners found for each distinct row, and edges by band."""
        total = len(self.starts)
        found = in_order(count_found, [(self.job, self.names, p, total) for p in range(total)])
        num_rows = len(self.first_a) + (0 if self.job.is_self else len(self.first_b))
        degree = np.zeros(num_rows, np.int64)
        for counts in found:
            degree[self._place_a(counts.a)] += counts.count_a
            degree[self._place_b(counts.b)] += counts.count_b
        return degree, np.sum([counts.bands for counts in found], axis=0)

    def _place_a(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.first_a, rows)

    def _place_b(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.first_b, rows) + self.offset_b

    def _looked_up(self, sample: Sample) -> Looked:
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
        return Looked(sample, pairs, self._is_found(pairs, rows_a, rows_b))

    def _partners(self, own: Side, rows: np.ndarray, other: Side) -> list[Partners]:
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

    def _margin(self, looked: Looked, degree: np.ndarray, aim: float) -> float:
        pairs = looked.pairs
        weight = pair_shares(looked.sample, degree, pairs.row, pairs.partner)
        return margin_for(pairs.margin, weight, aim)

    def _certificate(
        self, looked: Looked, degree: np.ndarray, bands: np.ndarray, alpha: float
    ) -> dict[str, Any]:
        pairs, is_missed = looked.pairs, ~looked.is_found
        band = bands_of(pairs.cos, self.job.threshold)

        def recall(chosen: np.ndarray, num_found: int) -> Recall:
            lost = chosen & is_missed
            missed = Missed(row=pairs.row[lost], partner=pairs.partner[lost])
            return certified(
                looked.sample, degree, missed, num_found, int(chosen.sum()), alpha=alpha
            )

        everything = np.ones(len(band), bool)
        return {
            **asdict(recall(everything, int(bands.sum()))),
            "confidence": 1 - alpha,
            "rows_sampled": len(looked.sample.rows),
            "rows": len(degree),
            "bands": [
                {
                    "from": round(self.job.threshold + number * BAND_WIDTH, 6),
                    **asdict(recall(band == number, int(count))),
                }
                for number, count in enumerate(bands.tolist())
            ],
        }


def _reaches(certificate: dict[str, Any], target: float) -> bool:
    """Overall, and in the lowest band with enough sampled pairs to tell."""
    tested = [band for band in certificate["bands"] if band["sampled"] >= BAND_PAIRS]
    return all(own["low"] >= target for own in [certificate, *tested[:1]])


def _said(certificate: dict[str, Any]) -> str:
    tested = [band for band in certificate["bands"] if band["sampled"] >= BAND_PAIRS]
    lowest = ""
    if tested:
        lowest = f", {tested[0]['value']:.4f} from {tested[0]['from']:g} (at least "
        lowest += f"{tested[0]['low']:.4f})"
    return f"recall {certificate['value']:.4f} (at least {certificate['low']:.4f}){lowest}"


def certificate_json(certificate: dict[str, Any]) -> bytes:
    return (json.dumps(certificate, indent=1) + "\n").encode()
