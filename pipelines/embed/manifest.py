"""Committed units -> the manifest of a vectors artifact.

In:  a survey and the commit records of its units.
Out: Manifest: parts in the order of units, those of unchanged units linked from the last run.
"""

import json
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts.layout import QUARANTINE, WORK
from pipelines.artifacts.manifest import DataFile, Manifest, library_versions
from pipelines.embed.scan import Survey
from sbert_core.corpus.units import Unit
from sbert_core.storage import Storage
from sbert_core.vectors.reader import check_part, columns_schema
from workers.embed.unit_job import UnitJob

SOURCE_FACTS = ("file", "first_row", "num_rows", "documents", "truncated", "lost_tokens", "tokens")
SUMMED_FACTS = ("documents", "truncated", "lost_tokens", "tokens")


def committed_units(job: UnitJob) -> dict[int, dict[str, Any]]:
    """Commit records whose files are there, by unit."""
    storage = job.storage
    records = [json.loads(storage.read(s.name)) for s in storage.list(f"{job.work}/commits")]
    return {
        record["unit"]: record
        for record in records
        if _is_there(storage, record["data"]) and _is_there(storage, record["quarantine"])
    }


def unit_accounts(storage: Storage, work: str) -> list[dict[str, Any]]:
    """What became of the rows of each unit, whichever run of a generation it was done in."""
    return [json.loads(storage.read(stat.name)) for stat in storage.list(f"{work}/accounts")]


def manifest_of(survey: Survey, job: UnitJob) -> Manifest:
    goal, plan = survey.goal, survey.plan
    files, quarantine = _files(survey, committed_units(job))
    totals = {name: sum(file.source[name] for file in files) for name in SUMMED_FACTS}
    if not files:  # a part without rows, so that readers of an empty artifact find its columns
        files.append(DataFile(**job.empty(goal.model.dim, _types(survey)), source={"file": ""}))
    quarantined = sum(file.rows for file in quarantine)
    if plan.corrupt:
        whole_files = job.corrupt(dict(plan.corrupt))
        quarantine.append(DataFile(**whole_files, source={"files": len(plan.corrupt)}))
    return Manifest(
        kind="vectors",
        generation=goal.generation,
        schema=_schema(job.storage, files[0].path),
        rows=sum(file.rows for file in files),
        quarantined=quarantined,
        files=tuple(files),
        quarantine=tuple(quarantine),
        spec={
            **goal.spec_facts(survey.scale),
            "batch_invariant": _is_batch_invariant(survey, unit_accounts(job.storage, job.work)),
        },
        made_from={
            "corpus": goal.corpus.root,
            "shape": goal.shape,
            "files": [asdict(file) for file in plan.files],
            "corrupt": [path for path, _ in plan.corrupt],
            "text": goal.spec.template,
            "id": plan.id_kind,
            "id_column": plan.id_column,
            "positional": plan.id_kind == "position",
            "carry": list(goal.spec.carry),
            "where": goal.spec.where,
            "limit": goal.spec.limit,
            "types": plan.types,
            "partition_types": plan.partition_types,
        },
        facts={**totals, "storage_error": survey.storage_error},
        versions=library_versions(),
    )


def _is_batch_invariant(survey: Survey, accounts: list[dict[str, Any]]) -> bool:
    """Did every actor that made a vector find its bits to be its text's own?

    Vectors that are taken over are as the runs found that made them.
    """
    goal, plan = survey.goal, survey.plan
    encoded = [unit for unit in accounts if unit["num_encoded"]]
    num_reused = sum(unit["num_reused"] for unit in accounts)
    if num_reused:  # perhaps of a run that stopped before it published
        others = [name for name in goal.unfinished() if name != goal.generation]
        older = [unit_accounts(goal.out.storage, f"{WORK}/{name}") for name in others]
        encoded += [unit for units in older for unit in units if unit["num_encoded"]]
    found = [unit.get("batch_invariant", False) for unit in encoded]
    is_linked = any(link.data.rows for link in plan.links.values())
    if goal.out.current is not None and (num_reused or is_linked):
        found.append(goal.out.current.spec.get("batch_invariant", False))
    return all(found)


def _types(survey: Survey) -> dict[str, pa.DataType]:
    """Types of the id and carried columns by published name, for a part without rows."""
    plan, current = survey.plan, survey.goal.out.current
    types = plan.column_types
    if types or current is None:
        found = {name: types.get(column) for name, column in survey.goal.spec.carried.items()}
        found["id"] = types.get(plan.id_column or "", pa.string())
    else:  # every file is as the last run saw it, so the last part has the columns
        schema = columns_schema(survey.goal.out.storage, current.files[0].path)
        found = {column.name: column.type for column in schema}
        found["id"] = found.get("doc_id", found["id"])
    return {name: kind or pa.null() for name, kind in found.items()}


def _files(survey: Survey, commits: dict[int, dict]) -> tuple[list[DataFile], list[DataFile]]:
    """Data and quarantine files of all units, in order."""
    plan, storage, generation = survey.plan, survey.goal.out.storage, survey.goal.generation
    files, quarantine = [], []
    for unit in plan.units:
        if unit.number in plan.links:
            link = plan.links[unit.number]
            data = _linked(storage, generation, link.data, unit)
            bad = link.quarantine and _linked(storage, generation, link.quarantine, unit)
        else:
            record = commits[unit.number]
            source = {name: record[name] for name in SOURCE_FACTS}
            data = DataFile(**record["data"], source=source)
            bad = record["quarantine"] and DataFile(**record["quarantine"], source=source)
        files.append(data)
        quarantine += [bad] if bad else []
    return files, quarantine


def _linked(storage: Storage, generation: str, file: DataFile, unit: Unit) -> DataFile:
    """The same bytes under this generation and unit number."""
    folder = file.path.split("/")[0]
    if folder == QUARANTINE or not file.rows:  # parts with rows were checked when they were scanned
        check_part(storage, file.path, file.sha256)
    name = f"{folder}/{generation}/{unit.name}-{file.sha256[:16]}.parquet"
    storage.link(file.path, name)
    return DataFile(
        path=name, rows=file.rows, sha256=file.sha256, bytes=file.bytes, source=file.source
    )


def _is_there(storage: Storage, file: dict | None) -> bool:
    if file is None:
        return True
    found = storage.stat(file["path"])
    return found is not None and found.size == file["bytes"]


def _schema(storage: Storage, name: str) -> dict[str, str]:
    with pq.ParquetFile(pa.PythonFile(storage.open(name), "r")) as file:
        return {field.name: str(field.type) for field in file.schema_arrow}
