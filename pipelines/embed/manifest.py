"""Build the manifest of a vectors artifact from its committed units.

In:  a ScanResult and the commit records of its units.
Out: Manifest: parts in the order of units, those of unchanged units linked from the last run.
"""

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts.kinds import VECTORS, VectorsInputs, VectorsMetrics
from pipelines.artifacts.layout import QUARANTINE, WORK
from pipelines.artifacts.manifest import Manifest, VectorsManifest
from pipelines.embed.scan import ScanResult
from pipelines.embed.unit_log import UnitLog
from sbert_core.corpus.reader import IdKind
from sbert_core.corpus.units import Unit
from sbert_core.data_file import DataFile
from sbert_core.storage import Storage
from sbert_core.vectors.reader import check_part, read_part_schema
from workers.embed.records import CommitRecord, UnitStats, read_stats
from workers.embed.unit_job import UnitJob

SUMMED_KEYS = ("documents", "truncated", "lost_tokens", "tokens")


def build_manifest(scan: ScanResult, job: UnitJob, log: UnitLog) -> VectorsManifest:
    """The manifest of all units, done in this run or linked from the last one."""
    identity, plan = scan.identity, scan.plan
    files, quarantine = _collect_files(scan, log.commits)
    totals = {name: sum(file.source_count(name) for file in files) for name in SUMMED_KEYS}
    if not files:  # a part without rows, so that readers of an empty artifact find its columns
        files.append(
            job.write_empty_part(identity.model.dim, _column_types(scan)).made_from(file="")
        )
    quarantined = sum(file.rows for file in quarantine)
    if plan.corrupt:
        quarantine.append(
            job.write_corrupt_files(dict(plan.corrupt)).made_from(files=len(plan.corrupt))
        )
    makers = _Makers.find(scan, log.stats.values())
    return Manifest(
        kind=VECTORS.name,
        generation=identity.generation,
        schema=_spell_schema(job.storage, files[0].path),
        rows=sum(file.rows for file in files),
        quarantined=quarantined,
        files=tuple(files),
        quarantine=tuple(quarantine),
        settings=identity.settings(
            scan.scale,
            scan.precision.precision,
            is_batch_invariant=makers.is_batch_invariant,
        ),
        inputs=VectorsInputs(
            corpus=identity.corpus.root,
            shape=identity.part_recipe,
            files=plan.files,
            corrupt=tuple(path for path, _ in plan.corrupt),
            text=identity.spec.template,
            id=plan.id_kind,
            id_column=plan.id_column,
            positional=plan.id_kind is IdKind.POSITION,
            carry=identity.spec.carry,
            where=identity.spec.where,
            limit=identity.spec.limit,
            types=plan.types,
            partition_types=plan.partition_types,
        ),
        metrics=VectorsMetrics(
            **totals,
            storage_error=scan.storage_error,
            precision_error=scan.precision.error,
            processors=makers.processors or None,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Makers:
    """Who made the vectors of an artifact: this run, and those whose vectors it takes over.

    processors: digests of the bits that theirs give.
    """

    is_batch_invariant: bool
    processors: tuple[str, ...]

    @classmethod
    def find(cls, scan: ScanResult, stats: Collection[UnitStats]) -> "_Makers":
        """A vector's bits follow from its text alone only if all actors say so, and give the same.

        For vectors that are taken over, the runs that made them decide.
        """
        identity, plan = scan.identity, scan.plan
        encoded = [unit for unit in stats if unit.num_encoded]
        num_reused = sum(unit.num_reused for unit in stats)
        if num_reused:  # perhaps vectors of a run that stopped before it published
            others = [name for name in identity.unfinished() if name != identity.generation]
            older = [read_stats(identity.out.storage, f"{WORK}/{name}") for name in others]
            encoded += [unit for units in older for unit in units.values() if unit.num_encoded]
        found = [bool(unit.batch_invariant) for unit in encoded]
        # Units of version 0.1 state none.
        processors = {unit.processor for unit in encoded if unit.processor is not None}
        is_linked = any(link.data.rows for link in plan.links.values())
        if identity.current is not None and (num_reused or is_linked):
            found.append(identity.current.settings.batch_invariant)
            processors |= set(identity.current.metrics.processors or ())
        return cls(all(found) and len(processors) <= 1, tuple(sorted(processors)))


def _column_types(scan: ScanResult) -> dict[str, pa.DataType]:
    """Types of the id and carried columns by published name, for a part without rows."""
    plan, current = scan.plan, scan.identity.current
    types = plan.column_types
    if types or current is None:
        found = {name: types.get(column) for name, column in scan.identity.spec.carried.items()}
        found["id"] = types.get(plan.id_column or "", pa.string())
    else:  # no file was opened: all are unchanged, so the last part has the columns
        schema = read_part_schema(scan.identity.out.storage, current.files[0].path)
        found = {column.name: column.type for column in schema}
        found["id"] = found.get("doc_id", found["id"])
    return {name: kind or pa.null() for name, kind in found.items()}


def _collect_files(
    scan: ScanResult, commits: dict[int, CommitRecord]
) -> tuple[list[DataFile], list[DataFile]]:
    """Data and quarantine files of all units, in order."""
    plan, storage, generation = scan.plan, scan.identity.out.storage, scan.identity.generation
    files, quarantine = [], []
    for unit in plan.units:
        if unit.number in plan.links:
            link = plan.links[unit.number]
            data = _link_file(storage, generation, link.data, unit)
            bad = link.quarantine and _link_file(storage, generation, link.quarantine, unit)
        else:
            data, bad = commits[unit.number].data_files()
        files.append(data)
        quarantine += [bad] if bad else []
    return files, quarantine


def _link_file(storage: Storage, generation: str, file: DataFile, unit: Unit) -> DataFile:
    """The same bytes, linked under the name of this generation and unit; BrokenPart if damaged.

    In an object store the file stays where it is, in the folder of an older generation.
    """
    folder = file.path.split("/")[0]
    if folder == QUARANTINE or not file.rows:  # parts with rows were verified by the scan
        check_part(storage, file.path, file.sha256)
    name = f"{folder}/{generation}/{unit.name}-{file.sha256[:16]}.parquet"
    path = storage.carry_over(file.path, name)
    return DataFile(
        path=path, rows=file.rows, sha256=file.sha256, bytes=file.bytes, source=file.source
    )


def _spell_schema(storage: Storage, name: str) -> dict[str, str]:
    with pq.ParquetFile(pa.PythonFile(storage.open(name), "r")) as file:
        return {field.name: str(field.type) for field in file.schema_arrow}
