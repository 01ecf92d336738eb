"""Texts -> vectors, one row for one row, exactly once.

In:  a corpus of Parquet, CSV or JSON lines, and an encoder.
Out: a vectors artifact. Only new or changed texts pass the model, and each distinct one once.

A run goes: plan the units, scan them for repeats, embed what no earlier run and no earlier unit
has (pass 1), fill in what is borrowed (pass 2), publish. Every step leaves files that a rerun
takes up; only the last one is visible to readers.
"""

import tempfile
from dataclasses import asdict
from typing import Any

from pipelines.artifacts.errors import PartialWork
from pipelines.artifacts.layout import WORK
from pipelines.artifacts.writer import Writer
from pipelines.embed.estimate import EmbedEstimate, estimated
from pipelines.embed.executor import Fleet
from pipelines.embed.identity import Goal
from pipelines.embed.manifest import committed_units, manifest_of, unit_accounts
from pipelines.embed.model import pinned_model
from pipelines.embed.report import EmbedReport
from pipelines.embed.scan import Survey, scanned, surveyed
from pipelines.embed.spec import EmbedSpec
from pipelines.runtime.failure_cache import remembered
from pipelines.runtime.timing import Phases
from sbert_core.corpus.files import find_corpus, refuse_overlap
from sbert_core.corpus.published import DATA
from sbert_core.storage import storage_at
from workers.embed.unit_job import UnitJob


def run(spec: EmbedSpec) -> EmbedReport | EmbedEstimate:
    """Bring the artifact in line with the corpus."""
    phases = Phases()
    corpus = find_corpus(spec.corpus)
    refuse_overlap(spec.corpus, corpus, spec.out)
    with phases("model"):
        model = pinned_model(spec)
    if spec.plan:
        with Fleet(spec) as fleet, tempfile.TemporaryDirectory() as folder:
            goal = Goal(spec, corpus, model, Writer(storage_at(spec.out)), folder)
            goal.refuse_other_recipes()
            return estimated(scanned(goal, fleet))
    with Writer.claim(spec.out) as out:
        goal = Goal(spec, corpus, model, out, out.storage.uri)
        if goal.is_published:
            out.storage.delete([WORK])
            assert out.current is not None
            return EmbedReport.nothing_to_do(spec.out, out.current)
        goal.refuse_other_recipes()
        with remembered(out, spec, goal.generation), Fleet(spec) as fleet:
            return reached(goal, fleet, phases)


def reached(goal: Goal, fleet: Fleet, phases: Phases) -> EmbedReport:
    """Survey, embed, fill, publish."""
    with phases("plan"):
        survey = surveyed(goal, fleet)
    job = survey.job()
    try:
        encoded = _embed(survey, job, fleet, phases)
        _fill(survey, job, fleet, phases)
    except KeyboardInterrupt:
        raise PartialWork(_saved(survey, job, "stopped")) from None
    except OSError as error:
        raise PartialWork(_saved(survey, job, f"{error.strerror or error}")) from error
    with phases("manifest"):
        manifest = manifest_of(survey, job)
    report = EmbedReport.of(
        goal.spec.out,
        manifest,
        unit_accounts(job.storage, job.work),
        encoded,
        phases,
        fleet.num_actors,
        fleet.speeds.points(),
    )
    _refuse_changed_corpus(goal)
    goal.out.publish(manifest, rows_in=survey.num_rows_in, run=asdict(report))
    return report


def _embed(survey: Survey, job: UnitJob, fleet: Fleet, phases: Phases) -> list[dict[str, Any]]:
    """Pass 1: encode what each unit owns. Units without anything to encode wait for pass 2."""
    goal, counts = survey.goal, survey.counts
    done = committed_units(job)
    stashed = {stat.name.rpartition("/")[2] for stat in job.storage.list(f"{job.work}/stash")}
    todo = [
        unit
        for unit in survey.plan.new_units
        if counts.own_rows[unit.number] and unit.number not in done and unit.name not in stashed
    ]
    if not todo:
        return []
    # The longest first: what is left for the end is short.
    todo.sort(key=lambda unit: (-counts.own_chars[unit.number], unit.number))
    num_rows = sum(counts.own_rows[unit.number] for unit in todo)
    num_chars = sum(counts.own_chars[unit.number] for unit in todo)
    num_tokens = round(num_chars * survey.tokens_per_char())
    setup = goal.model.setup(fleet.place_model(goal.model, job.storage, goal.work))
    with phases("embed"):
        return fleet.embed(todo, num_rows, num_tokens, job, setup)


def _fill(survey: Survey, job: UnitJob, fleet: Fleet, phases: Phases) -> None:
    """Pass 2: commit the units that borrow."""
    done = committed_units(job)
    todo = [unit for unit in survey.plan.new_units if unit.number not in done]
    if todo:
        with phases("fill"):
            fleet.fill(todo, job, survey.goal.model.dim)


def _refuse_changed_corpus(goal: Goal) -> None:
    """A file that changed while it was read may have mixed old and new rows."""
    now = {file.path: file for file in find_corpus(goal.spec.corpus).files}
    changed = [file.path for file in goal.corpus.files if now.get(file.path) != file]
    if changed:
        goal.out.storage.delete([goal.work, f"{DATA}/{goal.generation}"])
        raise ValueError(
            f"{changed[0]} changed while it was being embedded; nothing was published, "
            "repeat the command when the corpus is at rest"
        )


def _saved(survey: Survey, job: UnitJob, why: str) -> str:
    done, total = len(committed_units(job)), len(survey.plan.new_units)
    return f"{why}; {done} of {total} units are saved, the same command goes on from there"
