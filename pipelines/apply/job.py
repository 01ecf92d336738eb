"""Clusters and a corpus -> the corpus without the rows that were removed.

In:  a clusters artifact, and the corpus whose vectors were clustered.
Out: a corpus artifact: files of the same names, formats, schemas and order. Rows without a vector
     stay. Files whose source and removed rows are those of the last generation are taken over.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

import ray

from pipelines.apply.identity import Goal, removed_rows
from pipelines.apply.spec import ApplySpec
from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import DataFile, Manifest, library_versions
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from pipelines.runtime.progress import progress
from pipelines.runtime.session import job_session
from pipelines.runtime.tasks import as_they_come
from pipelines.runtime.timing import Phases
from sbert_core.corpus.files import Corpus, find_corpus
from sbert_core.corpus.published import CORPUS, DATA, IN_A_GENERATION
from sbert_core.errors import Unsettled
from sbert_core.storage import Storage
from workers.apply import ApplyJob, Removed, apply_to_file

EARLIER_NOTE = "_apply.json"  # of versions that wrote files in place


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReport:
    """What stayed."""

    out: str
    folder: str
    files: int
    rows_in: int
    rows: int
    is_new: bool = True


def run(spec: ApplySpec) -> ApplyReport:
    """Bring the published corpus in line with the clusters."""
    phases = Phases()
    goal = Goal.of(spec)
    with Writer.claim(spec.out) as out:
        _refuse_foreign(spec, out)
        if out.current is not None and out.current.generation == goal.generation:
            out.storage.delete([WORK])
            return _report(spec, out.current, is_new=False)
        with phases("read"):
            removed = removed_rows(goal)
        _refuse_other(spec, goal.corpus, removed)
        with phases("write"), job_session(spec.out, spec.address):
            files = _applied(goal, removed, out)
        _refuse_untouched(spec, removed, files)
        _refuse_changed_meanwhile(spec, goal, out.storage)
        manifest = _manifest(goal, files)
        facts = manifest.facts
        out.publish(
            manifest,
            rows_in=facts["rows_in"] - facts["removed"],
            run={"phases": phases.seconds, "seconds": phases.total},
        )
        return _report(spec, manifest)


def _refuse_other(spec: ApplySpec, corpus: Corpus, removed: Removed) -> None:
    """Rows known by file and number must be found in this corpus."""
    missing = sorted(set(removed.rows) - {file.path for file in corpus.files})
    if missing:
        raise ValueError(
            f"corpus {spec.corpus} has no file {missing[0]}, which has rows to remove; give the "
            "corpus as it was given to sbert embed"
        )


def _refuse_untouched(spec: ApplySpec, removed: Removed, files: list[DataFile]) -> None:
    if len(removed.ids) and not any(file.source["removed"] for file in files):
        raise ValueError(
            f"no row of {spec.corpus} is among the {len(removed.ids):,} to be removed; give the "
            "corpus that was embedded"
        )


def _refuse_changed_meanwhile(spec: ApplySpec, goal: Goal, storage: Storage) -> None:
    """A file that changed while it was read may have lost the wrong rows."""
    now = {file.path: file for file in find_corpus(spec.corpus).files}
    changed = [file.path for file in goal.corpus.files if now.get(file.path) != file]
    if changed:
        storage.delete([f"{WORK}/{goal.generation}", f"{DATA}/{goal.generation}"])
        raise Unsettled(
            f"{changed[0]} changed while rows were being taken out of it; nothing was published, "
            "repeat the command when the corpus is at rest"
        )


def _refuse_foreign(spec: ApplySpec, out: Writer) -> None:
    """Only an output of this job is written to."""
    out.refuse_other(CORPUS)
    if out.storage.stat(EARLIER_NOTE) is not None:
        raise ValueError(
            f"out {spec.out} was written by an earlier version, with files in place "
            f"({EARLIER_NOTE}); choose a new folder, or remove it"
        )
    if out.current is not None:
        return
    for stat in out.storage.list():
        if stat.name[0] not in "_." and not IN_A_GENERATION.match(stat.name):
            raise ValueError(
                f"out {spec.out} holds {stat.name} and was not made by sbert apply; choose a new "
                "folder"
            )


def _applied(goal: Goal, removed: Removed, out: Writer) -> list[DataFile]:
    """Every file of the corpus; those that an earlier run finished are not written again."""
    files, storage = goal.corpus.files, out.storage
    job = ApplyJob(
        corpus=goal.corpus.folder,
        out=storage.uri,
        data=f"{DATA}/{goal.generation}",
        work=f"{WORK}/{goal.generation}",
        id_column=goal.id_column,
    )
    notes = {file.path: note for file in files if (note := _finished(storage, job.note_name(file)))}
    todo = [file for file in files if file.path not in notes]
    before = _before(goal, out.current)
    shared = ray.put(removed)
    total = sum(file.size for file in todo)
    with progress("apply", total, by=f"{len(todo)} files", unit="bytes") as advance:
        calls = [(job, file, shared, before.get(file.path)) for file in todo]
        for number, note in as_they_come(apply_to_file, calls):
            notes[todo[number].path] = note
            advance(todo[number].size, 0)
    return [DataFile(**notes[file.path]) for file in files]


def _finished(storage: Storage, name: str) -> dict[str, Any] | None:
    """The note of a file that is there."""
    if storage.stat(name) is None:
        return None
    note = json.loads(storage.read(name))
    found = storage.stat(note["path"])
    return note if found is not None and found.size == note["bytes"] else None


def _before(goal: Goal, current: Manifest | None) -> dict[str, dict[str, Any]]:
    """What the last generation made of this corpus, by the names of its files."""
    if current is None or current.made_from["corpus"] != goal.corpus.root:
        return {}
    return {file.source["path"]: asdict(file) for file in current.files}


def _manifest(goal: Goal, files: list[DataFile]) -> Manifest:
    counts = {
        "rows_in": sum(file.source["rows"] for file in files),
        "removed": sum(file.source["removed"] for file in files),
    }
    return Manifest(
        kind=CORPUS,
        generation=goal.generation,
        schema={},  # each file has its own
        rows=sum(file.rows for file in files),
        quarantined=0,
        files=tuple(files),
        quarantine=(),
        spec={"threshold": goal.threshold},
        made_from={
            "clusters": goal.clusters.uri,
            "clusters_files": [file.sha256 for file in goal.clusters.manifest.files],
            "corpus": goal.corpus.root,
            "id_column": goal.id_column,
        },
        facts=counts,
        versions=library_versions(),
    )


def _report(spec: ApplySpec, manifest: Manifest, is_new: bool = True) -> ApplyReport:
    return ApplyReport(
        out=spec.out,
        folder=Artifact(spec.out.rstrip("/"), manifest).folder,
        files=len(manifest.files),
        rows_in=manifest.facts["rows_in"],
        rows=manifest.rows,
        is_new=is_new,
    )
