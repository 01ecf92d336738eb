"""Plan the units of an embed job, from the corpus and what is already embedded.

In:  the corpus's files, the spec, the published artifact if there is one.
Out: Plan: units, those that are taken over whole, and the earlier parts to reuse vectors from.

Files with the path, size and version of the last run are not opened at all.
"""

import base64
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pipelines.artifacts.manifest import VectorsManifest
from pipelines.embed.columns import ColumnMapping
from pipelines.embed.plan_record import Link, Plan
from pipelines.embed.spec import EmbedSpec
from pipelines.embed.staging import Staging
from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.files import Corpus, CorpusFile
from sbert_core.corpus.parquet import ParquetFooter, read_footer
from sbert_core.corpus.reader import CorpusReader, IdKind
from sbert_core.corpus.source import SourceFile
from sbert_core.corpus.units import Unit, rows_per_unit, unit_ranges
from sbert_core.data_file import DataFile
from sbert_core.storage import storage_at
from workers.embed.records import CommitRecord
from workers.embed.scan import EarlierPart

FOOTER_THREADS = 16
INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")


def make_plan(
    staging: Staging,
    part_recipe: str,
    current: VectorsManifest | None,
    salvaged: Sequence[CommitRecord],
) -> Plan:
    """Split the corpus into units.

    staging: copies the text files whose rows are counted here or read later.
    part_recipe: digest of all that shapes a part but the corpus; parts of another are not linked.
    current: the published vectors. salvaged: parts of unfinished runs.
    ValueError for columns that are missing or of different types; CorruptFile as in `staging`.
    """
    spec, corpus = staging.spec, staging.corpus
    known = known_files(corpus, current, part_recipe)
    # With a filter, the last row of a limit is found by reading rows.
    reads_all = spec.limit is not None and spec.where is not None
    staging.copy(file for file in corpus.files if reads_all or file.path not in known)
    footers = _read_footers(corpus, known, staging)
    good = [file for file in corpus.files if file.path not in staging.corrupt]
    hive_types = partition_types(corpus.files)
    had_rows = any(file.rows for file in known.values())
    mapping = ColumnMapping(spec, hive_types, current if had_rows else None)
    for file in good:
        if file.path in footers:
            mapping.check(file, footers[file.path].schema, staging.texts.get(file.path))
    files = [
        known.get(file.path) or _source_file(file, footers[file.path], spec, mapping.text_columns)
        for file in good
    ]
    plan = Plan(
        files=tuple(files),
        units=(),
        links={},
        earlier=(),
        corrupt=(),
        types=mapping.types,
        schema=base64.b64encode(mapping.schema.serialize()).decode(),
        id_kind=mapping.id_kind,
        id_column=mapping.id_column,
        partition_types=hive_types,
        staged=staging.copies,
    )
    reader = plan.reader(spec, corpus, staging.place)
    plan = _with_units(plan, _rows_to_read(plan.files, spec, reader))
    if mapping.id_kind is not IdKind.CONTENT:
        plan = replace(plan, links=_links(plan.units, known, current))
    to_read = {unit.path for unit in plan.new_units}
    staging.copy(file for file in good if file.path in to_read)
    if to_read & staging.corrupt.keys():
        return make_plan(staging, part_recipe, current, salvaged)
    return replace(
        plan,
        earlier=_earlier_parts(plan, current, salvaged),
        staged=dict(staging.copies),
        corrupt=tuple(staging.corrupt.items()),
    )


def _with_units(plan: Plan, num_rows: dict[str, int]) -> Plan:
    """The plan with units for the first `num_rows` rows of each file."""
    ranges = [
        rows
        for file in plan.files
        for rows in unit_ranges(file.path, num_rows[file.path], file.rows_per_unit)
    ]
    return replace(plan, units=tuple(Unit(number, *rows) for number, rows in enumerate(ranges)))


def known_files(
    corpus: Corpus, current: VectorsManifest | None, part_recipe: str
) -> dict[str, SourceFile]:
    """Files that have not changed since they were embedded with the same recipe, by path."""
    if current is None or current.inputs.shape != part_recipe:
        return {}
    if current.inputs.corpus != corpus.root:
        return {}
    if current.inputs.partition_types != partition_types(corpus.files):
        return {}
    seen = {file.path: file for file in current.inputs.files}
    return {
        file.path: seen[file.path]
        for file in corpus.files
        if file.path in seen
        and (seen[file.path].size, seen[file.path].version) == (file.size, file.version)
    }


def _read_footers(
    corpus: Corpus, known: dict[str, SourceFile], staging: Staging
) -> dict[str, ParquetFooter]:
    """Footers of all files that are neither known nor left out, by path."""
    paths = [f.path for f in corpus.files if f.path not in known and f.path not in staging.corrupt]

    def footer(path: str) -> ParquetFooter | CorruptFile:
        try:
            if path in staging.copies:
                return read_footer(storage_at(staging.place), staging.copies[path])
            return read_footer(corpus.storage, path)
        except CorruptFile as error:
            return error

    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        found = dict(zip(paths, pool.map(footer, paths), strict=True))
    for error in found.values():
        if isinstance(error, CorruptFile):
            staging.leave_out(error)
    return {path: good for path, good in found.items() if isinstance(good, ParquetFooter)}


def partition_types(files: Sequence[CorpusFile]) -> dict[str, str]:
    """Arrow types of hive columns that every file has: int64 if all values are whole numbers."""
    if not files:
        return {}
    keys = set.intersection(*(set(file.partitions) for file in files))
    types = {}
    for key in sorted(keys):
        values = {file.partitions[key] for file in files} - {None}
        is_whole = bool(values) and all(INTEGER.fullmatch(str(value)) for value in values)
        types[key] = "int64" if is_whole else "string"
    return types


def _source_file(
    file: CorpusFile, footer: ParquetFooter, spec: EmbedSpec, text_columns: list[str]
) -> SourceFile:
    text_bytes = sum(footer.bytes_per_row.get(name, 0.0) for name in text_columns)
    return SourceFile(
        path=file.path,
        size=file.size,
        version=file.version,
        rows=footer.num_rows,
        rows_per_unit=rows_per_unit(footer.num_rows, text_bytes, spec.unit_rows),
    )


def _rows_to_read(
    files: Sequence[SourceFile], spec: EmbedSpec, reader: CorpusReader
) -> dict[str, int]:
    """By file the number of first rows that hold all rows of the limit."""
    if spec.limit is None:
        return {file.path: file.rows for file in files}
    left = spec.limit
    ends = {}
    for file in files:
        ends[file.path], taken = _first_matching(file, left, reader)
        left -= taken
    return ends


def _first_matching(file: SourceFile, limit: int, reader: CorpusReader) -> tuple[int, int]:
    """Rows of a file up to the last of the first `limit` that match, and how many match."""
    if limit <= 0:
        return 0, 0
    if reader.where is None:
        return min(file.rows, limit), min(file.rows, limit)
    taken = 0
    for rows in reader.stream(file.path, 0, file.rows):
        if taken + len(rows) >= limit:
            return int(rows.row[limit - taken - 1]) + 1, limit
        taken += len(rows)
    return file.rows, taken


def _earlier_parts(
    plan: Plan, current: VectorsManifest | None, salvaged: Sequence[CommitRecord]
) -> tuple[EarlierPart, ...]:
    """Parts whose vectors can be reused: those that are published, then those of unfinished runs.

    A unit that is linked takes its part over whole.
    """
    linked = {link.data.path: (number, link) for number, link in plan.links.items()}
    parts = []
    for file in current.files if current else ():
        if file.rows:
            unit, link = linked.get(file.path, (None, None))
            bad = link.quarantine.path if link and link.quarantine else None
            parts.append((file, unit, bad))
    parts += [(record.data_files()[0], None, None) for record in salvaged]
    return tuple(
        EarlierPart(
            number=number,
            name=file.path,
            linked=unit,
            quarantine=bad,
            file=file.source_text("file"),
            # A part without rows that were purged states no range: any will do, since it only says
            # which units read the part themselves.
            first_row=file.source_count("first_row") if "first_row" in file.source else 0,
            num_rows=file.source_count("num_rows") if "num_rows" in file.source else file.rows,
        )
        for number, (file, unit, bad) in enumerate(parts, start=len(plan.units))
    )


def _links(
    units: Sequence[Unit], known: dict[str, SourceFile], current: VectorsManifest | None
) -> dict[int, Link]:
    """By unit number the published files of units whose file and row range are unchanged."""
    if current is None:
        return {}

    def key(file: DataFile) -> tuple[str, int, int]:
        return (
            file.source_text("file"),
            file.source_count("first_row"),
            file.source_count("num_rows"),
        )

    def by_unit(files: Sequence[DataFile]) -> dict[tuple[str, int, int], DataFile]:
        """Files of units; the part of an empty artifact and the list of corrupt files are none."""
        return {key(file): file for file in files if "first_row" in file.source}

    parts, quarantine = by_unit(current.files), by_unit(current.quarantine)
    return {
        unit.number: Link(data=parts[place], quarantine=quarantine.get(place))
        for unit in units
        if unit.path in known and (place := (unit.path, unit.first_row, unit.num_rows)) in parts
    }
