"""Clusters and a corpus -> the corpus without the rows that were removed.

In:  a clusters artifact, and the corpus whose vectors were clustered.
Out: files of the same names, formats, schemas and order. Rows without a vector stay. `_apply.json`
     is written last and lists every file with its rows and sha256.
"""

import json
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import ray

from pipelines.artifacts import WORK, Artifact
from pipelines.clustering.rows import check_parts, read_columns
from pipelines.progress import progress
from pipelines.ray_tasks import as_they_come
from pipelines.session import job_session
from pipelines.specs import ApplySpec
from sbert_core.corpus.fetching import ChangedFile
from sbert_core.corpus.files import Corpus, find_corpus
from sbert_core.digest import digest
from sbert_core.shapes import COUNT, read_json
from sbert_core.storage import Storage, storage_at
from workers.applying import ApplyJob, Removed, apply_to_file

log = logging.getLogger(__name__)

NOTE = "_apply.json"
NOTE_SHAPE = {"goal": (str, None), "files": [{"path": str, "rows": COUNT, "rows_in": COUNT}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReport:
    """What stayed."""

    out: str
    files: int
    rows_in: int
    rows: int
    is_new: bool = True


def run(spec: ApplySpec) -> ApplyReport:
    clusters = Artifact.clusters(spec.clusters)
    threshold = _threshold(spec, clusters)
    vectors = _vectors_of(clusters)
    corpus = find_corpus(spec.corpus)
    id_column = vectors.manifest.made_from["id_column"]
    if id_column is None:
        _refuse_changed(corpus, vectors)
    goal = digest(
        {
            "clusters": clusters.manifest.generation,
            "threshold": threshold,
            "corpus": [[file.path, file.size, file.version] for file in corpus.files],
        }
    )
    storage = storage_at(spec.out)
    with storage.lock():
        done = _note(spec, storage, corpus)
        if done is not None and done["goal"] == goal:
            return _report(spec, done, is_new=False)
        job = ApplyJob(
            corpus=corpus.root, out=storage.uri, work=f"{WORK}/{goal[:16]}", id_column=id_column
        )
        removed = _removed(clusters, vectors, threshold)
        _refuse_other(spec, corpus, removed)
        before = [] if done is None else done["files"]
        _begin(storage, goal, before)
        with job_session(spec.out, spec.address):
            files = _applied(job, corpus, removed)
        _refuse_untouched(spec, removed, files)
        gone = {file["path"] for file in before} - {file["path"] for file in files}
        storage.delete(sorted(gone))
        note = {"goal": goal, "clusters": clusters.uri, "threshold": threshold, "files": files}
        storage.put(NOTE, (json.dumps(note, indent=1) + "\n").encode())
        storage.delete([WORK])
        return _report(spec, note)


def _threshold(spec: ApplySpec, clusters: Artifact) -> float:
    have = clusters.manifest.spec["thresholds"]
    words = ", ".join(f"{own:g}" for own in have)
    if spec.threshold is None and len(have) > 1:
        raise ValueError(f"{spec.clusters} has clusters at {words}; choose one with --threshold")
    wanted = have[0] if spec.threshold is None else spec.threshold
    if wanted not in have:
        raise ValueError(f"{spec.clusters} has no clusters at {wanted:g}, but at {words}")
    return wanted


def _vectors_of(clusters: Artifact) -> Artifact:
    source = clusters.manifest.made_from
    vectors = Artifact.vectors(source["vectors"])
    if [file.sha256 for file in vectors.manifest.files] != source["vectors_files"]:
        raise ValueError(
            f"{clusters.uri} is older than its vectors {vectors.uri}: they have changed since; "
            "find pairs and clusters again"
        )
    if "doc_id" in vectors.manifest.schema:
        raise ValueError(
            f"{vectors.uri} holds windows of documents; a removed window says nothing of its "
            "document: embed with --long truncate or pool"
        )
    return vectors


def _refuse_changed(corpus: Corpus, vectors: Artifact) -> None:
    """Rows known by number mean nothing in a file that has changed."""
    known = {f["path"]: (f["size"], f["version"]) for f in vectors.manifest.made_from["files"]}
    for file in corpus.files:
        if known.get(file.path, (file.size, file.version)) != (file.size, file.version):
            raise ChangedFile(
                f"{corpus.root}/{file.path} has changed since it was embedded, and its rows have "
                "no ids of their own; embed it again"
            )


def _removed(clusters: Artifact, vectors: Artifact, threshold: float) -> Removed:
    check_parts(clusters, clusters.manifest.files)  # what they say goes is gone
    table = read_columns(clusters, ["id", "threshold", "keep"])
    own = table.filter(pc.equal(table["threshold"], pa.scalar(threshold, pa.float32())))
    goes = pc.invert(own["keep"])
    ids = own["id"].filter(goes).combine_chunks()
    if vectors.manifest.made_from["id_column"] is not None:
        return Removed(ids, {})
    # Clusters list rows in the order of the vectors.
    place = read_columns(vectors, ["file", "row"]).filter(goes)
    files, row = place["file"].combine_chunks().dictionary_encode(), place["row"].to_numpy()
    code = files.indices.to_numpy()
    order = np.argsort(code, kind="stable")
    bounds = np.searchsorted(code[order], np.arange(len(files.dictionary) + 1))
    rows = {
        path: row[order[low:high]]
        for path, low, high in zip(files.dictionary.to_pylist(), bounds, bounds[1:], strict=False)
    }
    return Removed(ids[:0], rows)


def _begin(storage: Storage, goal: str, before: list[dict[str, Any]]) -> None:
    """From here on the folder is no finished corpus, and no other run's notes hold for it."""
    note = {"goal": None, "files": before}
    storage.put(NOTE, (json.dumps(note, indent=1) + "\n").encode())
    others = {stat.name.split("/")[1] for stat in storage.list(WORK)} - {goal[:16]}
    storage.delete([f"{WORK}/{name}" for name in sorted(others)])


def _refuse_other(spec: ApplySpec, corpus: Corpus, removed: Removed) -> None:
    """Rows known by file and number must be found in this corpus."""
    missing = sorted(set(removed.rows) - {file.path for file in corpus.files})
    if missing:
        raise ValueError(
            f"corpus {spec.corpus} has no file {missing[0]}, which has rows to remove; give the "
            "corpus as it was given to sbert embed"
        )


def _refuse_untouched(spec: ApplySpec, removed: Removed, files: list[dict[str, Any]]) -> None:
    if len(removed.ids) and all(file["rows"] == file["rows_in"] for file in files):
        raise ValueError(
            f"no row of {spec.corpus} is among the {len(removed.ids):,} to be removed; give the "
            "corpus that was embedded"
        )


def _applied(job: ApplyJob, corpus: Corpus, removed: Removed) -> list[dict[str, Any]]:
    """A note for each file; files that an earlier run finished are not written again."""
    storage = storage_at(job.out)
    notes = {
        file.path: json.loads(storage.read(job.note_name(file)))
        for file in corpus.files
        if storage.stat(job.note_name(file)) is not None
    }
    todo = [file for file in corpus.files if file.path not in notes]
    shared = ray.put(removed)
    total = sum(file.size for file in todo)
    with progress("apply", total, by=f"{len(todo)} files", unit="bytes") as advance:
        calls = [(job, file, shared) for file in todo]
        for number, note in as_they_come(apply_to_file, calls):
            notes[note["path"]] = note
            advance(todo[number].size, 0)
    return [notes[file.path] for file in corpus.files]


def _note(spec: ApplySpec, storage: Storage, corpus: Corpus) -> dict[str, Any] | None:
    """What an earlier run wrote here; a folder with files of others is refused."""
    if storage.uri == corpus.storage.uri:
        raise ValueError(f"out {spec.out} is the corpus itself; choose another folder")
    if storage.stat(NOTE) is not None:
        return read_json(storage, NOTE, NOTE_SHAPE)
    has_begun = any(True for _ in storage.list(WORK))
    others = [stat.name for stat in storage.list() if stat.name[0] not in "_."]
    if others and not has_begun:
        raise ValueError(
            f"out {spec.out} holds {others[0]} and was not made by sbert apply; choose a new folder"
        )
    return None


def _report(spec: ApplySpec, note: dict[str, Any], is_new: bool = True) -> ApplyReport:
    files = note["files"]
    return ApplyReport(
        out=spec.out,
        files=len(files),
        rows_in=sum(file["rows_in"] for file in files),
        rows=sum(file["rows"] for file in files),
        is_new=is_new,
    )
