"""Vectors -> all pairs of rows that are at least as similar as a threshold.

In:  a vectors artifact, or two of the same space.
Out: a pairs artifact: `id_a`, `id_b`, `cos`, every pair once, none missing. Groups of more than a
     thousand rows with equal vectors are listed as groups; one row of each stands in the pairs.

Blocks of rows are joined two by two as Ray tasks; every finished block pair is a file that a rerun
takes up.
"""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray

from pipelines.artifacts import DATA, WORK, Artifact, DataFile, Manifest, Writer, library_versions
from pipelines.joining import plan
from pipelines.phases import Phases
from pipelines.progress import polled, progress
from pipelines.ray_tasks import in_order
from pipelines.session import job_session
from pipelines.specs import PairsSpec
from sbert_core.digest import digest
from sbert_core.neighbours.alike import LARGEST, Alike
from sbert_core.neighbours.join import Turn
from sbert_core.vectors.pieces import sampled
from workers.joining import (
    WRITTEN_EDGES,
    BlockOf,
    JoinJob,
    Side,
    array_name,
    edges_name,
    join_blocks,
    part_digests,
    sampled_rows,
    write_block,
    write_equal,
    write_groups,
    write_nothing,
    write_part,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsReport:
    """What was found."""

    out: str
    folder: str
    pairs: int
    rows: int
    distinct: int
    threshold: float
    groups: int
    leading: int
    seconds: float
    is_new: bool = True


def run(spec: PairsSpec) -> PairsReport:
    """Join, unless the pairs of these vectors are there already."""
    phases = Phases()
    vectors = Artifact.vectors(spec.vectors)
    others = vectors if spec.against is None else Artifact.vectors(spec.against)
    _check_spaces(spec, vectors, others)
    files = [[file.sha256 for file in side.manifest.files] for side in (vectors, others)]
    identity = {"threshold": spec.threshold, "files": files, "against": spec.against is not None}
    generation = digest(identity)[:16]
    with Writer.claim(spec.out) as out:
        current = out.current
        if current is not None and current.kind != "pairs":
            raise ValueError(f"{spec.out} holds {current.kind}, not pairs; choose another --out")
        if current is not None and current.generation == generation:
            out.storage.delete([WORK])
            return _report(spec, current, 0.0, is_new=False)
        with job_session(spec.out, spec.address):
            a = plan.side_of("a", vectors)
            job = JoinJob(
                run=generation,
                out=out.storage.uri,
                work=f"{WORK}/{generation}",
                folder=f"{DATA}/{generation}",
                threshold=spec.threshold,
                a=a,
                b=a if spec.against is None else plan.side_of("b", others),
            )
            manifest = Join(spec, job, out).run(vectors, others)
        out.publish(manifest, rows_in=manifest.rows, run={"seconds": phases.total})
        return _report(spec, manifest, phases.total)


def _check_spaces(spec: PairsSpec, vectors: Artifact, others: Artifact) -> None:
    own, other = (side.manifest.spec["space"] for side in (vectors, others))
    if own != other:
        raise ValueError(
            f"{spec.vectors} holds vectors of space {own[:12]}, {spec.against} of {other[:12]}; "
            "they cannot be compared: embed both with one model"
        )


class Join:
    """One run of the exact join."""

    def __init__(self, spec: PairsSpec, job: JoinJob, out: Writer) -> None:
        self.spec = spec
        self.job = job
        self.storage = out.storage

    def run(self, vectors: Artifact, others: Artifact) -> Manifest:
        sides = [self.job.a] if self.job.is_self else [self.job.a, self.job.b]
        alike = {side.name: self._alike(side) for side in sides}
        turn = self._turn(sides, alike)
        blocks = {side.name: plan.blocks_of(side, alike[side.name]) for side in sides}
        self._write_blocks([block for own in blocks.values() for block in own], turn)
        rows, columns = blocks[self.job.a.name], blocks[self.job.b.name]
        pairs = [
            (a, b) for a in rows for b in columns if not self.job.is_self or a.number <= b.number
        ]
        self._join(pairs)
        files = self._parts(rows, pairs, alike)
        groups = [
            DataFile(**made, source={"side": side.name})
            for side in sides
            if len(alike[side.name].large())
            for made in in_order(write_groups, [(self.job, side, alike[side.name])])
        ]
        return self._manifest(vectors, others, files, groups, alike, turn)

    def _turn(self, sides: list[Side], alike: dict[str, Alike]) -> Turn:
        """A basis for all rows, once the number of pairs is known to be bearable."""
        samples, ids = [], []
        for side in sides:
            chosen = sampled(side.pieces, plan.SAMPLED_ROWS, (self.spec.seed,))
            found = in_order(sampled_rows, [(side, piece) for piece in chosen])
            ids.append([i for own, _ in found for i in own])
            samples.append(np.concatenate([vectors for _, vectors in found]))
        num_rows = [sum(piece.num_rows for piece in side.pieces) for side in sides]
        expected = plan.expected_pairs(
            samples[0], samples[-1], (num_rows[0], num_rows[-1]), self.spec.threshold
        )
        number = expected.num_pairs
        if self.job.is_self:
            number = number / 2 + alike[self.job.a.name].num_pairs
        log.info("about %s pairs expected, from a sample", f"{number:,.0f}")
        if self.spec.max_edges is not None and number > self.spec.max_edges:
            raise ValueError(
                f"about {number:,.0f} pairs reach {self.spec.threshold:g}, more than --max-edges "
                f"{self.spec.max_edges:,}; the row with id {ids[0][expected.densest]!r} alone has "
                f"about {expected.densest_pairs:,.0f}: raise the threshold, remove that group or "
                "allow more edges"
            )
        return Turn.of(np.concatenate(samples), self.spec.threshold)

    def _alike(self, side: Side) -> Alike:
        digests = in_order(part_digests, [(side, piece) for piece in side.pieces])
        return Alike.of(np.concatenate(digests))

    def _write_blocks(self, blocks: list[BlockOf], turn: Turn) -> None:
        basis = ray.put(turn)
        todo = [b for b in blocks if self.storage.stat(array_name(self.job, b, "rows")) is None]
        in_order(write_block, [(self.job, block, basis) for block in todo])

    def _join(self, pairs: list[tuple[BlockOf, BlockOf]]) -> None:
        todo = [p for p in pairs if self.storage.stat(edges_name(self.job, *p)) is None]
        left = sum(a.size * b.size // (2 if a.name == b.name else 1) for a, b in todo)
        by = f"{len(todo)} block pairs"
        with progress("pairs", left, by=by, unit="pairs") as advance, polled(self.job.run, advance):
            in_order(join_blocks, [(self.job, a, b) for a, b in todo])

    def _parts(
        self,
        rows: list[BlockOf],
        pairs: list[tuple[BlockOf, BlockOf]],
        alike: dict[str, Alike],
    ) -> list[DataFile]:
        own = alike[self.job.a.name]
        shared = [ray.put(alike[side.name]) for side in (self.job.a, self.job.b)]
        names = {
            row.number: [edges_name(self.job, a, b) for a, b in pairs if a is row] for row in rows
        }
        made = in_order(write_part, [(self.job, n, some, *shared) for n, some in names.items()])
        if self.job.is_self:
            groups = _in_bounds(own)
            calls = [(self.job, len(rows) + n, shared[0], some) for n, some in enumerate(groups)]
            made += in_order(write_equal, calls)
        found = [file for file in made if file is not None] or [write_nothing(self.job)]
        return [DataFile(**file) for file in found]

    def _manifest(
        self,
        vectors: Artifact,
        others: Artifact,
        files: list[DataFile],
        groups: list[DataFile],
        alike: dict[str, Alike],
        turn: Turn,
    ) -> Manifest:
        kind = vectors.manifest.schema["id"]
        sides = {"a": vectors} if self.job.is_self else {"a": vectors, "b": others}
        return Manifest(
            kind="pairs",
            generation=self.job.run,
            schema={"id_a": kind, "id_b": others.manifest.schema["id"], "cos": "float"},
            rows=sum(file.rows for file in files),
            quarantined=0,
            files=tuple(files),
            quarantine=(),
            groups=tuple(groups),
            spec={
                "threshold": self.spec.threshold,
                "method": "exact",
                "space": vectors.manifest.spec["space"],
            },
            made_from={
                name: {
                    "vectors": side.uri,
                    "generation": side.manifest.generation,
                    "files": [file.sha256 for file in side.manifest.files],
                }
                for name, side in sides.items()
            },
            facts={
                "leading": turn.num_leading,
                "rows": {name: side.rows for name, side in sides.items()},
                "distinct": {name: len(own.first) for name, own in alike.items()},
                "large_groups": {name: len(own.large()) for name, own in alike.items()},
            },
            versions=library_versions(),
        )


def _in_bounds(alike: Alike) -> list[np.ndarray]:
    """Groups whose pairs are written, in parts of a bounded number of them."""
    places = np.flatnonzero((alike.count > 1) & (alike.count <= LARGEST))
    count = alike.count[places]
    part = np.cumsum(count * (count - 1) // 2) // WRITTEN_EDGES
    return np.split(places, np.flatnonzero(np.diff(part)) + 1) if len(places) else []


def _report(
    spec: PairsSpec, manifest: Manifest, seconds: float, is_new: bool = True
) -> PairsReport:
    facts: dict[str, Any] = manifest.facts
    return PairsReport(
        out=spec.out,
        folder=f"{spec.out.rstrip('/')}/{DATA}/{manifest.generation}",
        pairs=manifest.rows,
        rows=sum(facts["rows"].values()),
        distinct=sum(facts["distinct"].values()),
        threshold=manifest.spec["threshold"],
        groups=sum(facts["large_groups"].values()),
        leading=facts["leading"],
        seconds=seconds,
        is_new=is_new,
    )
