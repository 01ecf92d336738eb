"""Vectors -> an index: shards of plain HNSW or FAISS files, and a card that says what they miss.

In:  a vectors artifact.
Out: an index artifact. An existing one of the same space is updated: shards for new rows,
     tombstones for removed ones, and a fresh build when too much of it is stale.

Shards are built, searched and measured by Ray tasks, one at a time each; every finished step
leaves a note that a rerun takes up.
"""

import logging
from dataclasses import dataclass
from functools import cached_property

from pipelines.artifacts.kinds import INDEX, IndexInputs, IndexMetrics, IndexSettings
from pipelines.artifacts.manifest import IndexManifest
from pipelines.artifacts.reader import Artifact, published_place
from pipelines.artifacts.sidecars import CARD, IndexCard
from pipelines.artifacts.writer import Writer
from pipelines.index import plan
from pipelines.index.build import Build
from pipelines.index.card import make_card, read_card
from pipelines.index.identity import IndexIdentity
from pipelines.index.manifest import build_manifest
from pipelines.index.spec import IndexSpec
from pipelines.index.update import MORE_SHARDS, STALE_LIMIT, Update, plan_update
from pipelines.runtime.stage import ArtifactStage, Made, StageReport, run_stage
from pipelines.runtime.timing import StageTimer
from sbert_core.index.kinds import IndexKind
from sbert_core.json_record import encode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport(StageReport):
    """The card, and what this run did for it."""

    folder: str
    card: IndexCard
    num_built: int = 0
    num_added: int = 0
    num_removed: int = 0


def run(spec: IndexSpec) -> IndexReport:
    """Bring the index in line with the vectors."""
    return run_stage(IndexStage(spec))


class IndexStage(ArtifactStage[IndexSettings, IndexInputs, IndexMetrics, IndexReport]):
    """The index of these vectors."""

    kind = INDEX

    def __init__(self, spec: IndexSpec) -> None:
        self._spec, self.address = spec, spec.address
        self._vectors = Artifact.vectors(spec.vectors)
        rows = self._vectors.rows
        self._index_kind = IndexKind.parse(spec.kind, spec.m, spec.ef_construction).fit_to(rows)
        self._index_kind.check_dim(self._vectors.manifest.settings.dim)
        factory = self._index_kind.factory
        if factory is not None and (wanted := f"faiss:{factory}") != spec.kind:
            log.warning(
                "%s has more cells than there are rows (%s); using %s", spec.kind, rows, wanted
            )
        self._done: tuple[IndexCard, int, int, int] | None = None

    @property
    def spec(self) -> IndexSpec:
        return self._spec

    @cached_property
    def identity(self) -> str:
        return self._source(None).target

    def is_current(self, manifest: IndexManifest) -> bool:
        return manifest.inputs.target == self.identity

    def refuse(self, out: Writer) -> None:
        current = out.current_of(INDEX)
        space = self._vectors.manifest.settings.space
        if current is not None and current.settings.space != space:
            raise ValueError(
                f"{self.spec.out} is an index of space {current.settings.space[:12]}, "
                f"{self.spec.vectors} holds vectors of space {space[:12]}; they cannot be "
                "compared: choose another --out"
            )

    def _source(self, base: IndexManifest | None) -> IndexIdentity:
        return IndexIdentity(self.spec, self._vectors, self._index_kind, base)

    def _find_base(self, current: IndexManifest | None) -> IndexManifest | None:
        """The index to update: one of the same kind and parameters."""
        if current is None:
            return None
        settings, spec = current.settings, self.spec
        known = (settings.kind, settings.m, settings.ef_construction)
        return current if known == (spec.kind, spec.m, spec.ef_construction) else None

    def make(
        self, out: Writer, timer: StageTimer
    ) -> Made[IndexSettings, IndexInputs, IndexMetrics]:
        """Update if that is worth it, else build; measure the recall."""
        source = self._source(self._find_base(out.current_of(INDEX)))
        row_ranges = self._vectors.row_ranges
        update = None
        if source.current is not None:
            settings = source.current.settings
            is_same = settings.recipe == self._vectors.manifest.settings.recipe
            update = plan_update(source.job(out, None), source.current, row_ranges, is_same)
            if reason := _why_anew(source.current, update, self.spec):
                log.info("building anew: %s", reason)
                source, update = self._source(None), None
        built = Build(source, out, row_ranges, update).run()
        manifest = build_manifest(source, built)
        card = make_card(manifest, built.measures, built.seconds)
        out.storage.put(CARD, card.to_json())
        added = row_ranges if update is None else update.added
        num_added = sum(piece.size for piece in added)
        self._done = (card, built.num_new, num_added, update.num_dead if update else 0)
        return Made(manifest=manifest, rows_in=self._vectors.rows, run=encode(card))

    def report(self, published: IndexManifest, *, is_new: bool, seconds: float) -> IndexReport:
        card, built, added, removed = self._done or (read_card(self.spec.out), 0, 0, 0)
        return IndexReport(
            out=self.spec.out,
            folder=published_place(self.spec.out, published),
            card=card,
            num_built=built,
            num_added=added,
            num_removed=removed,
            is_new=is_new,
            seconds=seconds,
        )


def _why_anew(current: IndexManifest, change: Update, spec: IndexSpec) -> str | None:
    records = current.metrics.shard_records
    rows = sum(record.rows for record in records)
    stale = (rows - sum(record.live for record in records) + change.num_dead) / rows
    if stale > STALE_LIMIT:
        return f"{stale:.0%} of the rows would be stale"
    added = sum(piece.size for piece in change.added)
    if len(records) + bool(added) > plan.num_shards(rows + added, spec.shards) + MORE_SHARDS:
        return f"{len(records) + 1} shards are too many"
    return None
