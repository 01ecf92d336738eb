"""A corpus and what is already there -> the units of an embed job.

In:  the corpus's files, the spec, the published artifact if there is one.
Out: Plan: units, those that are taken over whole, and the earlier parts to reuse vectors from.

Files with the path, size and version of the last run are not opened at all.
"""

import base64
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from pipelines.artifacts.manifest import DataFile, Manifest
from pipelines.embed.columns import Roles
from pipelines.embed.spec import EmbedSpec
from pipelines.embed.staging import Staging
from sbert_core.corpus.files import Corpus, CorpusFile
from sbert_core.corpus.parquet import CorruptFile, Layout, layout_of
from sbert_core.corpus.reader import IdKind, Reading
from sbert_core.corpus.row_filter import Where
from sbert_core.corpus.units import Unit, rows_per_unit, units_of
from sbert_core.storage import storage_at

FOOTER_THREADS = 16
NO_SCHEMA = base64.b64encode(pa.schema([]).serialize()).decode()
INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """A file of the corpus and how it is cut."""

    path: str
    size: int
    version: str
    rows: int
    rows_per_unit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A unit whose part of the last run still holds."""

    data: DataFile
    quarantine: DataFile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The pieces of a job; the same for the same corpus, spec and starting artifact.

    types: of the id and carried columns, as Arrow spells them; not every word can be read back.
    schema: the same columns as Arrow's message; without fields where no file was looked at.
    sources: earlier parts with the corpus file each came from.
    """

    files: tuple[FilePlan, ...]
    units: tuple[Unit, ...]
    links: dict[int, Link]
    sources: tuple[tuple[str, str], ...]
    corrupt: tuple[tuple[str, str], ...]
    types: dict[str, str]
    schema: str
    id_kind: IdKind
    id_column: str | None
    partition_types: dict[str, str]
    staged: dict[str, str]

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        """Of the id and carried columns, by their names in the corpus."""
        found = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema)))
        return {column.name: column.type for column in found}

    @property
    def new_units(self) -> list[Unit]:
        return [unit for unit in self.units if unit.number not in self.links]

    def reading(self, spec: EmbedSpec, corpus: Corpus, staging: str) -> Reading:
        return Reading(
            root=corpus.folder,
            template=spec.template,
            id_kind=self.id_kind,
            id_column=self.id_column,
            carry=spec.carried,
            where=Where(spec.where) if spec.where else None,
            partition_types=self.partition_types,
            staging=staging,
            staged=self.staged,
        )

    @property
    def num_linked_rows(self) -> int:
        """Rows of units that are taken over whole, with and without a vector."""
        return sum(
            link.data.source["documents"] + (link.quarantine.rows if link.quarantine else 0)
            for link in self.links.values()
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Plan":
        files = tuple(FilePlan(**file) for file in fields["files"])
        units = tuple(Unit(**unit) for unit in fields["units"])
        links = {
            int(number): Link(
                data=DataFile(**link["data"]),
                quarantine=DataFile(**link["quarantine"]) if link["quarantine"] else None,
            )
            for number, link in fields["links"].items()
        }
        return cls(
            files=files,
            units=units,
            links=links,
            sources=tuple((name, path) for name, path in fields["sources"]),
            corrupt=tuple((path, reason) for path, reason in fields["corrupt"]),
            types=fields["types"],
            schema=fields.get("schema", NO_SCHEMA),  # plans of version 0.1 have none
            id_kind=IdKind(fields["id_kind"]),
            id_column=fields["id_column"],
            partition_types=fields["partition_types"],
            staged=fields["staged"],
        )


def make_plan(
    staging: Staging,
    shape: str,
    current: Manifest | None,
    salvaged: list[tuple[str, str]],
) -> Plan:
    """Cut the corpus into units.

    shape: digest of everything but the corpus that shapes a part; parts of another are not linked.
    staging: copies the text files whose rows are counted here or read later.
    salvaged: parts of an unfinished run of the same recipe.
    """
    spec, corpus = staging.spec, staging.corpus
    known = known_files(corpus, current, shape)
    # To find the last row of a limit, rows are read.
    reads_all = spec.limit is not None and spec.where is not None
    staging.copy(file for file in corpus.files if reads_all or file.path not in known)
    layouts = _layouts(corpus, known, staging)
    good = [file for file in corpus.files if file.path not in staging.corrupt]
    hive_types = partition_types(corpus.files)
    had_rows = any(file.rows for file in known.values())
    roles = Roles(spec, hive_types, current if had_rows else None)
    for file in good:
        if file.path in layouts:
            roles.check(file, layouts[file.path].schema, staging.texts.get(file.path))
    files = [
        known.get(file.path) or _file_plan(file, layouts[file.path], spec, roles.text_columns)
        for file in good
    ]
    plan = Plan(
        files=tuple(files),
        units=(),
        links={},
        sources=_sources(current, salvaged),
        corrupt=(),
        types=roles.types,
        schema=base64.b64encode(roles.schema.serialize()).decode(),
        id_kind=roles.id_kind,
        id_column=roles.id_column,
        partition_types=hive_types,
        staged=staging.copies,
    )
    plan = _with_units(plan, _limited(plan.files, spec, plan.reading(spec, corpus, staging.place)))
    if roles.id_kind is not IdKind.CONTENT:
        plan = replace(plan, links=_links(plan.units, known, current))
    to_read = {unit.path for unit in plan.new_units}
    staging.copy(file for file in good if file.path in to_read)
    if to_read & staging.corrupt.keys():
        return make_plan(staging, shape, current, salvaged)
    return replace(plan, staged=dict(staging.copies), corrupt=tuple(staging.corrupt.items()))


def _with_units(plan: Plan, num_rows: dict[str, int]) -> Plan:
    """The plan, with the first rows of each file cut into units."""
    pieces = [
        piece
        for file in plan.files
        for piece in units_of(file.path, num_rows[file.path], file.rows_per_unit)
    ]
    return replace(plan, units=tuple(Unit(number, *piece) for number, piece in enumerate(pieces)))


def known_files(corpus: Corpus, current: Manifest | None, shape: str) -> dict[str, FilePlan]:
    """Files that are as the published artifact saw them."""
    if current is None or current.made_from["shape"] != shape:
        return {}
    if current.made_from["corpus"] != corpus.root:
        return {}
    if current.made_from["partition_types"] != partition_types(corpus.files):
        return {}
    seen = {file["path"]: FilePlan(**file) for file in current.made_from["files"]}
    return {
        file.path: seen[file.path]
        for file in corpus.files
        if file.path in seen
        and (seen[file.path].size, seen[file.path].version) == (file.size, file.version)
    }


def _layouts(corpus: Corpus, known: dict[str, FilePlan], staging: Staging) -> dict[str, Layout]:
    """Footers of all files that are not known, but for those that are left out."""
    paths = [f.path for f in corpus.files if f.path not in known and f.path not in staging.corrupt]

    def layout(path: str) -> Layout | CorruptFile:
        try:
            if path in staging.copies:
                return layout_of(storage_at(staging.place), staging.copies[path])
            return layout_of(corpus.storage, path)
        except CorruptFile as error:
            return error

    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        found = dict(zip(paths, pool.map(layout, paths), strict=True))
    for error in found.values():
        if isinstance(error, CorruptFile):
            staging.leave_out(error)
    return {path: layout for path, layout in found.items() if isinstance(layout, Layout)}


def partition_types(files: Sequence[CorpusFile]) -> dict[str, str]:
    """Hive columns that every file has; whole numbers where all values but nulls are."""
    if not files:
        return {}
    keys = set.intersection(*(set(file.partitions) for file in files))
    types = {}
    for key in sorted(keys):
        values = {file.partitions[key] for file in files} - {None}
        is_whole = bool(values) and all(INTEGER.fullmatch(str(value)) for value in values)
        types[key] = "int64" if is_whole else "string"
    return types


def _file_plan(
    file: CorpusFile, layout: Layout, spec: EmbedSpec, text_columns: list[str]
) -> FilePlan:
    text_bytes = sum(layout.bytes_per_row.get(name, 0.0) for name in text_columns)
    return FilePlan(
        path=file.path,
        size=file.size,
        version=file.version,
        rows=layout.num_rows,
        rows_per_unit=rows_per_unit(layout.num_rows, text_bytes, spec.unit_rows),
    )


def _limited(files: Sequence[FilePlan], spec: EmbedSpec, reading: Reading) -> dict[str, int]:
    """How many rows of each file belong to the job, from its first row on."""
    if spec.limit is None:
        return {file.path: file.rows for file in files}
    left = spec.limit
    cut = {}
    for file in files:
        cut[file.path], taken = _first_matching(file, left, reading)
        left -= taken
    return cut


def _first_matching(file: FilePlan, limit: int, reading: Reading) -> tuple[int, int]:
    """Rows of a file up to the last of the first `limit` that match, and how many match."""
    if limit <= 0:
        return 0, 0
    if reading.where is None:
        return min(file.rows, limit), min(file.rows, limit)
    taken = 0
    for rows in reading.stream(file.path, 0, file.rows):
        if taken + len(rows) >= limit:
            return int(rows.row[limit - taken - 1]) + 1, limit
        taken += len(rows)
    return file.rows, taken


def _sources(
    current: Manifest | None, salvaged: list[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    published = [(f.path, f.source["file"]) for f in current.files if f.rows] if current else []
    return (*published, *salvaged)


def _links(
    units: Sequence[Unit], known: dict[str, FilePlan], current: Manifest | None
) -> dict[int, Link]:
    """Units of unchanged files whose parts hold the very same rows."""
    if current is None:
        return {}

    def key(source: dict[str, Any]) -> tuple:
        return source["file"], source["first_row"], source["num_rows"]

    def by_unit(files: Sequence[DataFile]) -> dict[tuple, DataFile]:
        """Without the part of an artifact that has no rows, and the list of corrupt files."""
        return {key(file.source): file for file in files if "first_row" in file.source}

    parts, quarantine = by_unit(current.files), by_unit(current.quarantine)
    return {
        unit.number: Link(data=parts[place], quarantine=quarantine.get(place))
        for unit in units
        if unit.path in known and (place := (unit.path, unit.first_row, unit.num_rows)) in parts
    }
