"""Find for every text of a corpus the unit or earlier part that has its vector.

In:  a plan, and a folder for what the tasks exchange.
Out: counts by unit. Claims and loans are in files; steps that an interrupted run has finished are
     not repeated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pipelines.embed.plan_record import Plan, ScanCounts
from pipelines.embed.steps import run_step
from pipelines.runtime.progress import progress
from sbert_core.corpus.errors import RepeatedId
from sbert_core.corpus.reader import CorpusReader
from sbert_core.corpus.units import Unit
from sbert_core.digest import digest
from sbert_core.json_record import encode
from sbert_core.vectors.shuffle import Shuffle, choose_fan
from workers.embed.lend import LentVectors, lend_vectors
from workers.embed.scan import (
    AssignedOwners,
    EarlierPart,
    GatheredClaims,
    IndexedMaps,
    ScannedParts,
    ScannedUnits,
    UnitClaims,
    UnitScan,
    assign_owners,
    gather_claims,
    index_maps,
    scan_parts,
    scan_units,
)
from workers.embed.scan_files import ScanFiles, map_name
from workers.embed.unit_job import UnitJob

# Fewer rows are not worth a task: reading a file from the middle decodes its row group from the
# start.
LEAST_BAND_ROWS = 65_536

Numbered = TypeVar("Numbered", Unit, EarlierPart)


def make_scan_files(plan: Plan, place: str, work: str, *, compares_texts: bool) -> ScanFiles:
    """How a plan is scanned. place: the storage with the work folder.

    The folder has a name made from all that the files in it depend on: a rerun may find other
    vectors to reuse than the run that was interrupted.
    """
    most = max(1, choose_fan(plan.num_scanned_rows))
    weights = [0 if unit.number in plan.links else unit.num_rows for unit in plan.units]
    units = _cut(weights, most)
    parts = _cut([part.num_rows for part in plan.earlier], most)
    recipe = {
        "units": [encode(unit) for unit in plan.units],
        "linked": sorted(plan.links),
        "earlier": [encode(part) for part in plan.earlier],
        "texts": compares_texts,
        "ids": plan.id_column,
        "bands": [units, parts],
    }
    return ScanFiles(
        place=place,
        folder=f"{work}/scan-{digest(recipe)[:12]}",
        num_units=len(plan.units),
        bands=(*units, *(len(plan.units) + first for first in parts)),
        num_unit_bands=len(units),
        num_reduces=max(1, min(most, -(-plan.num_scanned_rows // LEAST_BAND_ROWS))),
        with_texts=compares_texts,
        with_ids=plan.id_column is not None,
    )


def _cut(weights: Sequence[int], most: int) -> list[int]:
    """The first of each of at most some `most` neighbouring groups of about equal weight."""
    least = max(LEAST_BAND_ROWS, -(-sum(weights) // most))
    firsts, total = [0], 0
    for number, weight in enumerate(weights):
        if total and total + weight > least:
            firsts.append(number)
            total = 0
        total += weight
    return firsts if weights else []


def by_band(files: ScanFiles, found: Iterable[Numbered]) -> dict[int, list[Numbered]]:
    """Units, or earlier parts, by the number of their band."""
    bands: dict[int, list[Numbered]] = {}
    for one in found:
        bands.setdefault(files.band_of(one.number), []).append(one)
    return bands


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSearch:
    """out: URI of the output, which holds the parts of earlier runs."""

    plan: Plan
    reader: CorpusReader
    files: ScanFiles
    out: str

    def run(self) -> ScanCounts:
        """Hash all texts and ids, and assign the owner of each vector.

        RepeatedId for an id that occurs twice.
        """
        files = self.files
        scanned = self._scan_units()
        bands = by_band(files, self.plan.earlier) if files.with_texts or files.with_ids else {}
        parts = {band: (band, own) for band, own in bands.items()}
        run_step(files, scan_parts, parts, ScannedParts, shared=(self.out,))
        scans = [map_name(band) for band in (*self._new_bands(), *bands)]
        if files.with_ids:
            index(files, files.ids, scans)
        if files.with_texts:
            index(files, files.texts, scans)
        reduces = range(files.num_reduces) if files.with_texts or files.with_ids else ()
        calls = {number: (number,) for number in reduces}
        assigned = run_step(files, assign_owners, calls, AssignedOwners)
        self._refuse_repeated_ids(assigned)
        claims = self._gather(len(calls)) if files.with_texts else None
        files.storage.delete([kind.folder for kind in (files.texts, files.ids, files.claims)])
        return _counts(scanned, assigned, claims)

    def _new_bands(self) -> dict[int, list[Unit]]:
        return by_band(self.files, self.plan.new_units)

    def _scan_units(self) -> list[UnitScan]:
        bands = self._new_bands()
        total = sum(unit.num_rows for unit in self.plan.new_units)
        with progress("scan", total) as advance:
            found = run_step(
                self.files,
                scan_units,
                {band: (band, units) for band, units in bands.items()},
                ScannedUnits,
                shared=(self.reader,),
                report=lambda scanned: advance(sum(unit.num_rows for unit in scanned.units), 0),
            )
        return [unit for scanned in found for unit in scanned.units]

    def _gather(self, num_reduces: int) -> list[UnitClaims]:
        """Bring the claims of each unit together, and write what is to be lent."""
        index(self.files, self.files.claims, [map_name(number) for number in range(num_reduces)])
        parts: dict[str, list[EarlierPart]] = {}
        for part in self.plan.earlier:
            parts.setdefault(part.file, []).append(part)
        calls = {
            band: (band, units, [p for path in _paths(units) for p in parts.get(path, [])])
            for band, units in self._new_bands().items()
        }
        found = run_step(self.files, gather_claims, calls, GatheredClaims)
        index(self.files, self.files.loans, [map_name(band) for band in calls])
        return [unit for gathered in found for unit in gathered.units]

    def _refuse_repeated_ids(self, assigned: Sequence[AssignedOwners]) -> None:
        repeated = next((one.repeated_ids for one in assigned if one.repeated_ids), None)
        if repeated is None:
            return
        value: str | int | None = None
        places: list[tuple[str, int | None]] = []
        for number, row in repeated:
            unit = self.plan.units[number]
            if number in self.plan.links:
                places.append((unit.path, None))
                continue
            rows = self.reader.read(unit.path, unit.first_row + row, 1)
            places.append((unit.path, unit.first_row + row))
            if value is None and rows.ids is not None:
                value = rows.ids[0].as_py()
        raise RepeatedId(value, tuple(places))


def lend(job: UnitJob, dim: int) -> None:
    """Carry vectors to the units that borrow them, after all that lend have theirs."""
    files = job.scanned
    if not files.with_texts:
        return
    owners = files.load("index_loans", 0, IndexedMaps)
    calls = {band: (band,) for band in owners.reduces}
    lent = run_step(files, lend_vectors, calls, LentVectors, shared=(job, dim))
    index(files, files.vectors(dim, job.dtype), [name for one in lent for name in one.maps])


def index(files: ScanFiles, shuffle: Shuffle, names: Sequence[str]) -> IndexedMaps:
    """Index the maps of a shuffle in a task, since all of them are read."""
    kind = shuffle.folder.rpartition("/")[2]
    calls = {0: (kind, shuffle, names)}
    [found] = run_step(files, index_maps, calls, IndexedMaps, step=f"index_{kind}")
    return found


def _paths(units: Iterable[Unit]) -> list[str]:
    """The files of units, each once."""
    return list(dict.fromkeys(unit.path for unit in units))


def _counts(
    scanned: Sequence[UnitScan],
    assigned: Sequence[AssignedOwners],
    claims: Sequence[UnitClaims] | None,
) -> ScanCounts:
    """Counts of the corpus and by unit. claims: None if each unit finds its own repeats."""
    if claims is None:  # all texts of a unit may be its own
        claims = [UnitClaims(one.unit, one.num_valid, one.num_chars) for one in scanned]
    return ScanCounts(
        rows_in={one.unit: one.num_rows for one in scanned},
        own_rows={one.unit: one.own_rows for one in claims},
        own_chars={one.unit: one.own_chars for one in claims},
        num_valid=sum(one.num_valid for one in scanned),
        num_chars=sum(one.num_chars for one in scanned),
        num_distinct=sum(one.num_distinct for one in assigned),
        num_reused=sum(one.num_reused for one in assigned),
    )
