"""Clusters and a corpus -> the corpus without the rows that were removed.

In:  a clusters artifact, and the corpus whose vectors were clustered.
Out: a corpus artifact: files of the same names, formats, schemas and order. Rows without a vector
     stay. Files whose source and removed rows are those of the last generation are taken over.
"""

from dataclasses import dataclass
from functools import cached_property

import ray

from pipelines.apply.identity import ApplyIdentity, find_removed_rows
from pipelines.apply.spec import ApplySpec
from pipelines.artifacts.kinds import CORPUS, CleanedInputs, CorpusMetrics, CorpusSettings
from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import Manifest
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from pipelines.runtime.progress import progress
from pipelines.runtime.stage import ArtifactStage, Made, StageReport, run_stage
from pipelines.runtime.tasks import as_they_come
from pipelines.runtime.timing import StageTimer
from sbert_core.corpus.files import Corpus, find_corpus
from sbert_core.corpus.published import DATA, IN_A_GENERATION
from sbert_core.data_file import DataFile
from sbert_core.errors import TransientError
from workers.apply import ApplyJob, RemovedRows, apply_to_file, read_note

EARLIER_NOTE = "_apply.json"  # of versions that wrote files in place

CorpusManifest = Manifest[CorpusSettings, CleanedInputs, CorpusMetrics]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyReport(StageReport):
    """rows_in: of the corpus; rows: of those that stayed."""

    folder: str
    files: int
    rows_in: int
    rows: int


def run(spec: ApplySpec) -> ApplyReport:
    """Bring the published corpus in line with the clusters."""
    return run_stage(ApplyStage(spec))


class ApplyStage(ArtifactStage[CorpusSettings, CleanedInputs, CorpusMetrics, ApplyReport]):
    """The rows of these clusters, taken out of that corpus."""

    kind = CORPUS

    def __init__(self, spec: ApplySpec) -> None:
        self._spec, self.address = spec, spec.address
        self._source = ApplyIdentity.of(spec)

    @property
    def spec(self) -> ApplySpec:
        return self._spec

    @cached_property
    def identity(self) -> str:
        return self._source.generation

    def refuse(self, out: Writer) -> None:
        """Only an output of this job is written to."""
        if out.storage.stat(EARLIER_NOTE) is not None:
            raise ValueError(
                f"out {self.spec.out} was written by an earlier version, with files in place "
                f"({EARLIER_NOTE}); choose a new folder, or remove it"
            )
        if out.current is not None:
            return
        for stat in out.storage.list():
            if stat.name[0] not in "_." and not IN_A_GENERATION.match(stat.name):
                raise ValueError(
                    f"out {self.spec.out} holds {stat.name} and was not made by sbert apply; "
                    "choose a new folder"
                )

    def make(
        self, out: Writer, timer: StageTimer
    ) -> Made[CorpusSettings, CleanedInputs, CorpusMetrics]:
        spec, source = self.spec, self._source
        with timer.phase("read"):
            removed = find_removed_rows(source)
        _refuse_other(spec, source.corpus, removed)
        with timer.phase("write"):
            files = _write_files(source, removed, out)
        _refuse_untouched(spec, removed, files)
        _refuse_changed_meanwhile(spec, source, out)
        metrics = CorpusMetrics(
            rows_in=sum(file.source_count("rows") for file in files),
            removed=sum(file.source_count("removed") for file in files),
        )
        manifest = Manifest(
            kind=CORPUS.name,
            generation=source.generation,
            schema={},  # each file has its own
            rows=sum(file.rows for file in files),
            quarantined=0,
            files=tuple(files),
            settings=CorpusSettings(threshold=source.threshold),
            inputs=CleanedInputs(
                clusters=source.clusters.uri,
                clusters_files=tuple(file.sha256 for file in source.clusters.manifest.files),
                corpus=source.corpus.root,
                id_column=source.id_column,
            ),
            metrics=metrics,
        )
        return Made(manifest=manifest, rows_in=metrics.rows_in - metrics.removed)

    def report(self, published: CorpusManifest, *, is_new: bool, seconds: float) -> ApplyReport:
        return ApplyReport(
            out=self.spec.out,
            folder=Artifact(self.spec.out.rstrip("/"), published).folder,
            files=len(published.files),
            rows_in=published.metrics.rows_in,
            rows=published.rows,
            is_new=is_new,
            seconds=seconds,
        )


def _refuse_other(spec: ApplySpec, corpus: Corpus, removed: RemovedRows) -> None:
    """Rows known by file and number must be found in this corpus."""
    missing = sorted(set(removed.rows) - {file.path for file in corpus.files})
    if missing:
        raise ValueError(
            f"corpus {spec.corpus} has no file {missing[0]}, which has rows to remove; give the "
            "corpus as it was given to sbert embed"
        )


def _refuse_untouched(spec: ApplySpec, removed: RemovedRows, files: list[DataFile]) -> None:
    if len(removed.ids) and not any(file.source_count("removed") for file in files):
        raise ValueError(
            f"no row of {spec.corpus} is among the {len(removed.ids):,} to be removed; give the "
            "corpus that was embedded"
        )


def _refuse_changed_meanwhile(spec: ApplySpec, source: ApplyIdentity, out: Writer) -> None:
    """A file that changed while it was read may have lost the wrong rows."""
    now = {file.path: file for file in find_corpus(spec.corpus).files}
    changed = [file.path for file in source.corpus.files if now.get(file.path) != file]
    if changed:
        out.discard(source.generation)
        raise TransientError(
            f"{changed[0]} changed while rows were being taken out of it; nothing was published, "
            "repeat the command when the corpus is at rest"
        )


def _write_files(source: ApplyIdentity, removed: RemovedRows, out: Writer) -> list[DataFile]:
    """Every file of the corpus; those that an earlier run finished are not written again."""
    files, storage = source.corpus.files, out.storage
    job = ApplyJob(
        corpus=source.corpus.folder,
        out=storage.uri,
        data=f"{DATA}/{source.generation}",
        work=f"{WORK}/{source.generation}",
        id_column=source.id_column,
    )
    notes = {file.path: note for file in files if (note := read_note(job, file)) is not None}
    todo = [file for file in files if file.path not in notes]
    previous = _previous_files(source, out.current_of(CORPUS))
    shared = ray.put(removed)
    total = sum(file.size for file in todo)
    with progress("apply", total, by=f"{len(todo)} files", unit="bytes") as advance:
        calls = [(job, file, shared, previous.get(file.path)) for file in todo]
        for number, note in as_they_come(apply_to_file, calls):
            notes[todo[number].path] = note
            advance(todo[number].size, 0)
    return [notes[file.path] for file in files]


def _previous_files(source: ApplyIdentity, current: CorpusManifest | None) -> dict[str, DataFile]:
    """Files that the last generation made of this corpus, by their paths in the corpus."""
    if current is None or current.inputs.corpus != source.corpus.root:
        return {}
    return {file.source_text("path"): file for file in current.files}
