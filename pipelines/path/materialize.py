"""Copy what an artifact lists of older generations into the folders of its own.

In:  an artifact whose manifest lists files of several generations: an update in an object store.
Out: the same artifact with one data folder, and a manifest that lists only it. Rows, their order,
     hashes and the name of the generation stay; so `sbert embed` has nothing to do afterwards.

Files are copied by the store, one task for each; they keep their hash in their names, so a run
that was killed goes on where it stopped. The last manifest is kept readable, like that of any
update: files of older generations are removed by the next publish.
"""

from dataclasses import replace
from typing import cast

from pipelines.artifacts.kinds import INDEX, VECTORS
from pipelines.artifacts.manifest import AnyManifest, IndexManifest
from pipelines.artifacts.writer import Writer
from pipelines.path.spec import PathSpec
from pipelines.runtime.progress import progress
from pipelines.runtime.stage import Stage, StageReport, run_stage
from pipelines.runtime.tasks import as_they_come
from pipelines.runtime.timing import StageTimer
from sbert_core.data_file import DataFile
from workers.path import copy_file


def materialize(spec: PathSpec) -> StageReport:
    """Bring all files of the artifact into the folders of its generation."""
    return run_stage(MaterializeStage(spec))


class MaterializeStage(Stage[AnyManifest, StageReport]):
    """One folder for all data files of an artifact."""

    def __init__(self, spec: PathSpec) -> None:
        self._spec, self.address = spec, spec.address

    @property
    def spec(self) -> PathSpec:
        return self._spec

    def find_published(self, out: Writer) -> AnyManifest | None:
        current = _current(out)
        if own_paths(current):
            return None
        out.tidy_after_kill()
        return current

    def work(self, out: Writer, timer: StageTimer) -> AnyManifest:
        current = _current(out)
        paths = own_paths(current)
        sizes = {file.path: file.bytes for file in current.listed}
        calls = [(out.storage.uri, old, new, sizes[old]) for old, new in paths.items()]
        total = sum(sizes[old] for old in paths)
        with progress("path", total, by=f"{len(paths)} files", unit="bytes") as advance:
            for number, _ in as_they_come(copy_file, calls):
                advance(calls[number][3], 0)
        moved = with_paths(current, paths)
        out.replace(moved)
        return moved

    def report(self, published: AnyManifest, *, is_new: bool, seconds: float) -> StageReport:
        return StageReport(out=self.spec.out, is_new=is_new, seconds=seconds)


def own_paths(manifest: AnyManifest) -> dict[str, str]:
    """Where files of older generations belong in the folders of this one, by their paths."""
    numbers = {_unit_place(file): number for number, file in enumerate(manifest.files)}
    found = {}
    for file in manifest.listed:
        folder, generation, name = _parts(file.path)
        if generation == manifest.generation:
            continue
        if manifest.kind == VECTORS.name and "first_row" in file.source:
            # The number of its unit: readers of the folder get rows in the order of the corpus.
            number = numbers[_unit_place(file)]
            name = f"{number:06d}-{file.sha256[:16]}.parquet"
        found[file.path] = f"{folder}/{manifest.generation}/{name}"
    return found


def _unit_place(file: DataFile) -> tuple[object, object]:
    """The rows that a file of vectors or of their quarantine was made from."""
    return file.source.get("file"), file.source.get("first_row")


def _parts(path: str) -> tuple[str, str, str]:
    """Folder, generation and name of a listed file."""
    folder, _, rest = path.partition("/")
    generation, _, name = rest.partition("/")
    if not name:
        raise ValueError(f"the manifest lists {path}, a file of no generation; make it again")
    return folder, generation, name


def with_paths(manifest: AnyManifest, paths: dict[str, str]) -> AnyManifest:
    """The same manifest with other paths for some of its files."""

    def move(files: tuple[DataFile, ...]) -> tuple[DataFile, ...]:
        return tuple(replace(file, path=paths.get(file.path, file.path)) for file in files)

    moved = replace(
        manifest,
        files=move(manifest.files),
        quarantine=move(manifest.quarantine),
        sidecars=move(manifest.sidecars),
    )
    if manifest.kind != INDEX.name:
        return moved
    return _with_paths_of_shards(cast(IndexManifest, moved), paths)


def _with_paths_of_shards(manifest: IndexManifest, paths: dict[str, str]) -> AnyManifest:
    """An index states the paths of its files in its settings and in the records of its shards."""
    settings, metrics = manifest.settings, manifest.metrics
    records = [
        replace(
            record, files=tuple(replace(f, path=paths.get(f.path, f.path)) for f in record.files)
        )
        for record in metrics.shard_records
    ]
    trained = settings.trained and paths.get(settings.trained, settings.trained)
    return replace(
        manifest,
        settings=replace(settings, trained=trained),
        metrics=replace(metrics, shard_records=tuple(records)),
    )


def _current(out: Writer) -> AnyManifest:
    assert out.current is not None, "the artifact was opened before"
    return out.current
