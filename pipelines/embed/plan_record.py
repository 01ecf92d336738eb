"""What is decided before the model runs, and `plan.json`, the file that keeps it for a rerun."""

import base64
import json
from dataclasses import dataclass, field

import pyarrow as pa

from pipelines.artifacts.kinds import VectorsSettings
from pipelines.embed.spec import EmbedSpec
from sbert_core.corpus.files import Corpus
from sbert_core.corpus.reader import CorpusReader, IdKind
from sbert_core.corpus.row_filter import RowFilter
from sbert_core.corpus.source import SourceFile
from sbert_core.corpus.units import Unit
from sbert_core.data_file import DataFile
from sbert_core.json_record import Count, decode, encode, optional
from sbert_core.storage import Storage
from workers.embed.scan import EarlierPart
from workers.embed.scan_files import ScanFiles

PLAN = "plan.json"
NO_SCHEMA = base64.b64encode(pa.schema([]).serialize()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The files of a unit whose part of the last run still holds."""

    data: DataFile
    quarantine: DataFile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The units of a job; the same for the same corpus, spec and starting artifact.

    links: by unit number, units that are taken over whole.
    earlier: parts of earlier runs, whose vectors are reused, numbered after the units.
    corrupt: files that are left out, each with the reason.
    types: of the id and carried columns, as Arrow spells them; not every spelling can be parsed.
    schema: the same columns as Arrow's message; without fields where no file was opened.
    staged: the Parquet copy of each text file.
    """

    files: tuple[SourceFile, ...]
    units: tuple[Unit, ...]
    links: dict[int, Link]
    earlier: tuple[EarlierPart, ...]
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
        """Units that are not linked."""
        return [unit for unit in self.units if unit.number not in self.links]

    @property
    def num_scanned_rows(self) -> int:
        """Rows of new units and of parts of earlier runs."""
        num_new = sum(unit.num_rows for unit in self.new_units)
        return num_new + sum(part.num_rows for part in self.earlier)

    @property
    def num_linked_rows(self) -> int:
        """Rows of units that are taken over whole, with and without a vector."""
        return sum(
            link.data.source_count("documents") + (link.quarantine.rows if link.quarantine else 0)
            for link in self.links.values()
        )

    def reader(self, spec: EmbedSpec, corpus: Corpus, staging: str) -> CorpusReader:
        """How the rows of units are read. staging: where the Parquet copies are."""
        return CorpusReader(
            root=corpus.folder,
            template=spec.template,
            id_kind=self.id_kind,
            id_column=self.id_column,
            carry=spec.carried,
            where=RowFilter(spec.where) if spec.where else None,
            partition_types=self.partition_types,
            staging=staging,
            staged=self.staged,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCounts:
    """What the scan found: by unit the rows that pass the filter, and the texts it must encode."""

    rows_in: dict[int, int] = field(default_factory=dict)
    own_rows: dict[int, int] = field(default_factory=dict)
    own_chars: dict[int, int] = field(default_factory=dict)
    num_valid: int = 0
    num_chars: int = 0
    num_distinct: int = 0
    num_reused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHead:
    """The part of `plan.json` that concerns other runs: settings, scale, error of its vectors."""

    spec: VectorsSettings
    scale: float | None
    precision_error: float | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """All of `plan.json`. quality: what storing vectors in fewer bits costs in cosines.

    scan: where the owners of the vectors are.
    """

    spec: VectorsSettings
    plan: Plan
    counts: ScanCounts
    scan: ScanFiles
    scale: float | None
    quality: dict[str, float]
    precision_error: float | None = optional()


def read_plan_head(storage: Storage, work: str) -> PlanHead:
    """Settings and scale of the plan in a work folder."""
    name = f"{work}/{PLAN}"
    return decode(PlanHead, json.loads(storage.read(name)), name)


def write_plan_file(storage: Storage, work: str, record: PlanFile) -> None:
    """Save a plan in a work folder."""
    storage.put(f"{work}/{PLAN}", json.dumps(encode(record)).encode())


def read_plan_file(storage: Storage, work: str) -> PlanFile | None:
    """The plan saved in a work folder; ValueError where it is broken.

    None where an earlier version has written it, whose scan is of another form.
    """
    name = f"{work}/{PLAN}"
    found = decode(_PlanFileJson, json.loads(storage.read(name)), name)
    plan, counts = found.plan, found.counts
    if plan.earlier is None or found.scan is None:
        return None
    return PlanFile(
        spec=found.spec,
        plan=Plan(
            files=plan.files,
            units=plan.units,
            links={int(number): link for number, link in plan.links.items()},
            earlier=plan.earlier,
            corrupt=plan.corrupt,
            types=plan.types,
            schema=plan.schema,
            id_kind=IdKind(plan.id_kind),
            id_column=plan.id_column,
            partition_types=plan.partition_types,
            staged=plan.staged,
        ),
        counts=ScanCounts(
            rows_in=_by_number(counts.rows_in),
            own_rows=_by_number(counts.own_rows),
            own_chars=_by_number(counts.own_chars),
            num_valid=counts.num_valid,
            num_chars=counts.num_chars,
            num_distinct=counts.num_distinct,
            num_reused=counts.num_reused,
        ),
        scan=found.scan,
        scale=found.scale,
        quality=found.quality,
        precision_error=found.precision_error,
    )


def _by_number(counts: dict[str, int]) -> dict[int, int]:
    """JSON has text for keys that are numbers."""
    return {int(unit): count for unit, count in counts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanJson:
    """A Plan as JSON has it."""

    files: tuple[SourceFile, ...]
    units: tuple[Unit, ...]
    links: dict[str, Link]
    earlier: tuple[EarlierPart, ...] | None = None
    corrupt: tuple[tuple[str, str], ...]
    types: dict[str, str]
    schema: str = NO_SCHEMA  # plans of version 0.1 have none
    id_kind: str
    id_column: str | None
    partition_types: dict[str, str]
    staged: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountsJson:
    """ScanCounts as JSON has them."""

    rows_in: dict[str, Count]
    own_rows: dict[str, Count]
    own_chars: dict[str, Count]
    num_valid: Count
    num_chars: Count
    num_distinct: Count
    num_reused: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanFileJson:
    spec: VectorsSettings
    plan: _PlanJson
    counts: _CountsJson
    scan: ScanFiles | None = None
    scale: float | None
    quality: dict[str, float]
    precision_error: float | None = optional()
