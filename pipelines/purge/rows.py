"""The rows of an artifact whose ids must be forgotten: count them, write files without them."""

from dataclasses import replace

import pyarrow as pa
import ray

from pipelines.artifacts.errors import IncompleteArtifact
from pipelines.artifacts.kinds import INDEX, VECTORS, VectorsMetrics
from pipelines.artifacts.manifest import AnyManifest, VectorsManifest
from pipelines.artifacts.writer import Writer
from pipelines.runtime.tasks import in_order
from sbert_core.data_file import DataFile
from sbert_core.digest import digest
from sbert_core.storage import Storage
from workers.purge import RowCount, count_rows, count_shard_rows, purge_part

SUMMED_KEYS = ("documents", "truncated", "lost_tokens", "tokens")
RANGE_KEYS = ("first_row", "num_rows")


def count_found(storage: Storage, manifest: AnyManifest, ids: pa.Array) -> dict[str, int]:
    """By path of each listed file with rows: how many of them have one of the ids."""
    return {path: count.found for path, count in scan_rows(storage, manifest, ids).items()}


def scan_rows(storage: Storage, manifest: AnyManifest, ids: pa.Array) -> dict[str, RowCount]:
    """Read every listed file that has ids, and look for some. By path."""
    is_index = manifest.kind == INDEX.name
    files = [f for f in manifest.listed if not is_index or f.source.get("role") == "rows"]
    shared = ray.put(ids)
    calls = [(storage.uri, file, shared) for file in files]
    counts = in_order(count_shard_rows if is_index else count_rows, calls)
    return {file.path: count for file, count in zip(files, counts, strict=True)}


def purged_vectors(out: Writer, counts: dict[str, int], ids: pa.Array) -> VectorsManifest:
    """Write files without the rows that were counted, and the manifest; publishing is not done.

    IncompleteArtifact if the rows that are left are not those that were counted to be.
    """
    current = out.current_of(VECTORS)
    assert current is not None, "rows were counted in it"
    # Of counts, not of ids: a digest of a short id would give it away to those who try all.
    generation = digest({"purged": current.generation, "found": sorted(counts.items())})[:16]
    touched = {_unit(file) for file in current.listed if counts[file.path]}
    files = _without_rows(out.storage, current.files, generation, counts, ids)
    quarantine = _without_rows(out.storage, current.quarantine, generation, counts, ids)
    purged = replace(
        current,
        generation=generation,
        rows=sum(file.rows for file in files),
        quarantined=current.quarantined - sum(counts[file.path] for file in current.quarantine),
        files=tuple(_unlinkable(file, touched) for file in files),
        quarantine=tuple(_unlinkable(file, touched) for file in quarantine if file.rows),
        metrics=_metrics(current, files),
    )
    left = sum(file.rows for file in (*files, *quarantine))
    expected = sum(file.rows - counts[file.path] for file in current.listed)
    if left != expected:
        raise IncompleteArtifact(out.storage.uri, left, expected)
    return purged


def _metrics(current: VectorsManifest, files: list[DataFile]) -> VectorsMetrics:
    """Counts of the rows that are left; measured errors stay as they are."""
    counted = [file for file in files if "documents" in file.source]
    if not counted:
        return current.metrics
    documents, truncated, lost, tokens = (
        sum(file.source_count(name) for file in counted) for name in SUMMED_KEYS
    )
    return replace(
        current.metrics,
        documents=documents,
        truncated=truncated,
        lost_tokens=lost,
        tokens=tokens,
    )


def _without_rows(
    storage: Storage,
    files: tuple[DataFile, ...],
    generation: str,
    counts: dict[str, int],
    ids: pa.Array,
) -> list[DataFile]:
    """Files written again where rows were counted, the others taken over as they are."""
    names = [f"{f.path.split('/')[0]}/{generation}/{n:06d}" for n, f in enumerate(files)]
    todo = [n for n, file in enumerate(files) if counts[file.path]]
    shared = ray.put(ids)
    made = in_order(purge_part, [(storage.uri, files[n], names[n], shared) for n in todo])
    found = dict(zip(todo, made, strict=True))
    for n, file in enumerate(files):
        if n not in found:
            target = f"{names[n]}-{file.sha256[:16]}.parquet"
            found[n] = replace(file, path=storage.carry_over(file.path, target))
    return [found[n] for n in range(len(files))]


def _unit(file: DataFile) -> tuple[object, object]:
    return file.source.get("file"), file.source.get("first_row")


def _unlinkable(file: DataFile, touched: set[tuple[object, object]]) -> DataFile:
    """A file of a unit that lost rows states no range: an update must read its rows again."""
    if _unit(file) not in touched:
        return file
    return file.made_from(**{k: v for k, v in file.source.items() if k not in RANGE_KEYS})
