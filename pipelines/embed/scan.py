"""A goal -> everything that is settled before the model runs.

In:  a goal and a fleet to scan with.
Out: Survey: the plan, who encodes what, the scale of int8. Saved, so that a rerun takes it up.
"""

import json
import logging
from dataclasses import asdict, dataclass, field
from typing import Any

from pipelines.embed.executor import Fleet
from pipelines.embed.identity import Goal
from pipelines.embed.plan import Plan, make_plan
from pipelines.embed.sample import sampled_texts
from pipelines.embed.staging import Staging
from sbert_core.corpus.parquet import CorruptFile
from sbert_core.corpus.reader import Reading
from sbert_core.text import invalid_reason
from sbert_core.vectors.quantize import VectorType, calibrated_scale, cosine_errors, num_clipped
from workers.embed.scan import Shuffle
from workers.embed.unit_job import UnitJob

log = logging.getLogger(__name__)

PARTITION_ROWS = 1_000_000
SAMPLE_TEXTS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the scan found."""

    rows_in: dict[int, int] = field(default_factory=dict)
    own_rows: dict[int, int] = field(default_factory=dict)
    own_chars: dict[int, int] = field(default_factory=dict)
    num_valid: int = 0
    num_chars: int = 0
    num_distinct: int = 0
    num_reused: int = 0

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Counts":
        """As it was saved; JSON turns numbers that are keys into text."""
        for name in ("rows_in", "own_rows", "own_chars"):
            fields[name] = {int(unit): value for unit, value in fields[name].items()}
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is to do for a goal.

    storage_error: what storing vectors in fewer bits costs in cosines.
    """

    goal: Goal
    plan: Plan
    counts: Counts
    scale: float | None = None
    storage_error: dict[str, Any] = field(default_factory=dict)

    @property
    def num_rows_in(self) -> int:
        return sum(self.counts.rows_in.values()) + self.plan.num_linked_rows

    @property
    def reading(self) -> Reading:
        return self.plan.reading(self.goal.spec, self.goal.corpus, self.goal.workplace)

    def job(self) -> UnitJob:
        """What workers need to know."""
        goal, plan = self.goal, self.plan
        metadata = {"sbert.space": goal.model.space, "sbert.dtype": goal.spec.dtype}
        if self.scale is not None:
            metadata["sbert.scale"] = repr(self.scale)
        return UnitJob(
            out=goal.out.storage.uri,
            generation=goal.generation,
            reading=self.reading,
            num_units=len(plan.units),
            num_partitions=_num_partitions(goal, plan) if goal.spec.distinct == "corpus" else 0,
            sources=tuple(name for name, _ in plan.sources),
            source_paths=tuple(path for _, path in plan.sources),
            dtype=VectorType(goal.spec.dtype),
            scale=self.scale,
            has_chunks=goal.spec.long == "chunks",
            metadata=metadata,
        )

    def tokens_per_char(self) -> float:
        """From a few texts, cut as the model cuts them."""
        sample = sampled_texts(self.goal, self.plan, self.plan.new_units, SAMPLE_TEXTS)
        texts = [str(t) for t in sample if not invalid_reason(t)]
        num_tokens = sum(len(t.ids) for t in self.goal.model.encoder.tokens_of(texts))
        return num_tokens / max(1, sum(map(len, texts)))


def surveyed(goal: Goal, fleet: Fleet) -> Survey:
    """The survey an unfinished run has left, or a new one."""
    storage = goal.out.storage
    place = f"{goal.work}/plan.json"
    if storage.stat(place) is not None:
        log.info("taking up the plan of an unfinished run")
        # Interruptions of whole runs are held against no unit.
        storage.delete([f"{goal.work}/attempts"])
        saved = goal.plan_file(goal.generation)
        plan, counts = Plan.from_dict(saved["plan"]), Counts.from_dict(saved["counts"])
        return Survey(goal, plan, counts, saved["scale"], saved["quality"])
    try:
        survey = scanned(goal, fleet)
    except ValueError:  # a mended corpus, or other options, have a generation of their own
        storage.delete([goal.work])
        raise
    scale, error = _calibrated(survey)
    facts = {
        "spec": goal.spec_facts(scale),
        "plan": survey.plan.to_dict(),
        "counts": asdict(survey.counts),
        "scale": scale,
        "quality": error,
    }
    storage.put(place, json.dumps(facts).encode())
    return Survey(goal, survey.plan, survey.counts, scale, error)


def scanned(goal: Goal, fleet: Fleet) -> Survey:
    """Plan and scan; a file that proves corrupt on the way is left out, if that is allowed."""
    staging = Staging(
        spec=goal.spec,
        corpus=goal.corpus,
        place=goal.workplace,
        folder=f"{goal.work}/staged",
        stage=fleet.stage,
    )
    while True:
        try:
            return _scanned(goal, fleet, staging)
        except CorruptFile as error:
            staging.leave_out(error)


def _scanned(goal: Goal, fleet: Fleet, staging: Staging) -> Survey:
    plan = make_plan(staging, goal.shape, goal.out.current, _salvaged(goal))
    shuffle = Shuffle(
        place=goal.workplace,
        folder=goal.work,
        num_partitions=_num_partitions(goal, plan),
        with_texts=goal.spec.distinct == "corpus",
        with_ids=plan.id_column is not None,
    )
    reading = plan.reading(goal.spec, goal.corpus, goal.workplace)
    found = fleet.scan(plan, reading, shuffle, goal.out.storage.uri)
    return Survey(goal, plan, Counts(**found))


def _num_partitions(goal: Goal, plan: Plan) -> int:
    """Few enough rows in each, those of earlier runs included, to settle in memory."""
    num_old = goal.out.current.rows if goal.out.current else 0
    num_rows = sum(unit.num_rows for unit in plan.units) + num_old
    return max(1, -(-num_rows // PARTITION_ROWS))


def _salvaged(goal: Goal) -> list[tuple[str, str]]:
    """Parts an unfinished run with another corpus has left; their vectors are still good."""
    storage = goal.out.storage
    found = []
    for name in goal.unfinished():
        for stat in storage.list(f"_work/{name}/commits"):
            record = json.loads(storage.read(stat.name))
            found.append((record["data"]["path"], record["file"]))
    return sorted(found)


def _calibrated(survey: Survey) -> tuple[float | None, dict]:
    """The int8 scale, and what storing costs in cosines.

    The cost is that of the artifact to be: measured on texts of old units and new ones alike.
    """
    kind = VectorType(survey.goal.spec.dtype)
    if kind is VectorType.FLOAT32:
        return None, {}
    texts = sampled_texts(survey.goal, survey.plan, survey.plan.units, SAMPLE_TEXTS)
    sample = survey.goal.model.documents(texts).vectors
    scale = _kept_scale(survey.goal)
    if scale is None and kind is VectorType.INT8:
        scale = calibrated_scale(sample)
    error: dict[str, Any] = {"sample": len(sample), **cosine_errors(sample, kind, scale)}
    if scale is not None and (clipped := num_clipped(sample, scale)):
        error["clipped"] = clipped
        log.warning(
            "%d of %d sampled vectors reach beyond the int8 scale of the first run and are "
            "clipped: cosines move by up to %.2g; for a scale of their own embed to another --out",
            clipped,
            len(sample),
            error["pair_max"],
        )
    return scale, error


def _kept_scale(goal: Goal) -> float | None:
    """The scale of vectors that may be reused: of the last run, or of an unfinished one."""
    if (current := goal.out.current) is not None and current.rows:
        return current.spec["scale"]
    for name in goal.unfinished():
        return goal.plan_file(name)["scale"]
    return None
