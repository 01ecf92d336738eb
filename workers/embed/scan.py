"""Tasks: hash the texts and ids of a corpus, and find for each text the owner of its vector.

In:  bands of units, and of parts of earlier runs.
Out: for each unit its claims, and what is to be lent; counts by unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.arrays import BoolArray, Int64Array, RecordArray, UInt64Array
from sbert_core.corpus.errors import MissingId
from sbert_core.corpus.parquet import content_hash, count_chars
from sbert_core.corpus.reader import CorpusReader, CorpusRows
from sbert_core.corpus.units import Unit
from sbert_core.json_record import Count
from sbert_core.storage import storage_at
from sbert_core.vectors.part import read_document_hashes, read_quarantined_ids
from sbert_core.vectors.shuffle import Shuffle
from sbert_core.vectors.text_owners import (
    CLAIM,
    LOAN,
    TEXT_RECORD,
    choose_reduces,
    find_owners,
    find_repeats,
    hash_key,
    keep_two,
    make_loans,
    make_records,
    merge_occurrences,
    owner_key,
    unit_key,
)
from workers.embed.scan_files import ScanFiles, UnitRecords, map_name


@dataclass(frozen=True, slots=True)
class UnitScan:
    """Counts of a unit: rows that pass the filter, those with a valid text, characters of these."""

    unit: Count
    num_rows: Count
    num_valid: Count
    num_chars: Count


@dataclass(frozen=True, slots=True)
class ScannedUnits:
    """The units of a band."""

    units: tuple[UnitScan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPart:
    """A part of an earlier run, whose vectors are reused.

    linked: the unit that it is taken over as, None if its vectors alone are. quarantine: file of
    that unit's other rows. file, first_row, num_rows: what it was made from.
    """

    number: int
    name: str
    linked: int | None
    quarantine: str | None
    file: str
    first_row: int
    num_rows: int

    def is_near(self, unit: Unit) -> bool:
        """Whether it holds rows of the unit's file about where the unit's are."""
        lowest, highest = unit.first_row - unit.num_rows, unit.first_row + 2 * unit.num_rows
        return (
            self.file == unit.path
            and self.first_row < highest
            and self.first_row + self.num_rows > lowest
        )


def scan_units(
    files: ScanFiles, reader: CorpusReader, band: int, units: Sequence[Unit]
) -> ScannedUnits:
    """Hash the texts and ids of a band's units. MissingId for a row without an id."""
    texts, ids = [np.empty(0, TEXT_RECORD)], [np.empty(0, TEXT_RECORD)]
    counts = []
    for unit, rows in reader.read_units(units):
        is_valid, hashes = rows.hashes
        row = rows.row - unit.first_row
        num_chars = count_chars(rows.texts)
        if files.with_texts:
            valid = make_records(hashes[is_valid], unit.number, row[is_valid], num_chars[is_valid])
            texts.append(merge_occurrences(valid))
        if files.with_ids:
            ids.append(keep_two(make_records(_hash_ids(rows), unit.number, row)))
        valid_chars = int(num_chars[is_valid].sum())
        counts.append(UnitScan(unit.number, len(rows), int(is_valid.sum()), valid_chars))
    _write(files, band, np.concatenate(texts), np.concatenate(ids))
    scanned = ScannedUnits(tuple(counts))
    files.save("scan_units", band, scanned)
    return scanned


def _hash_ids(rows: CorpusRows) -> UInt64Array:
    assert rows.ids is not None, "ids are compared only if they are a column"
    return _hash_values(rows.ids, rows.path, rows.row)


def _hash_values(ids: pa.Array, path: str, row: Int64Array) -> UInt64Array:
    if ids.null_count:
        place = int(row[ids.is_null().to_numpy(zero_copy_only=False)][0])
        raise MissingId(path, place)
    digests = b"".join(content_hash(str(value)) for value in ids.to_pylist())
    return np.frombuffer(digests, ">u8").reshape(-1, 2).astype(np.uint64)


@dataclass(frozen=True, slots=True)
class ScannedParts:
    """A band of parts of earlier runs. num_texts: distinct ones, by part."""

    num_texts: Count


def scan_parts(files: ScanFiles, out: str, band: int, parts: Sequence[EarlierPart]) -> ScannedParts:
    """Hash a band of parts of earlier runs; their ids too where they are linked whole.

    out: where the parts are.
    """
    storage = storage_at(out)
    texts, ids = [np.empty(0, TEXT_RECORD)], [np.empty(0, TEXT_RECORD)]
    for part in parts:
        position, hashes, found = read_document_hashes(storage, part.name)
        if files.with_texts:
            texts.append(merge_occurrences(make_records(hashes, part.number, position)))
        if files.with_ids and part.linked is not None:
            own = _hash_values(found, part.name, position)
            ids.append(keep_two(make_records(own, part.linked, position)))
            if part.quarantine is not None:
                others = read_quarantined_ids(storage, part.quarantine)
                row = np.arange(len(others))
                own = _hash_values(others, part.quarantine, row)
                ids.append(keep_two(make_records(own, part.linked, row)))
    _write(files, band, np.concatenate(texts), np.concatenate(ids))
    scanned = ScannedParts(sum(map(len, texts)))
    files.save("scan_parts", band, scanned)
    return scanned


def _write(files: ScanFiles, band: int, texts: RecordArray, ids: RecordArray) -> None:
    """Write a band's maps of hashes."""
    if files.with_texts:
        reduce = choose_reduces(texts, files.num_reduces)
        files.texts.write_map(map_name(band), reduce, texts, hash_key)
    if files.with_ids:
        reduce = choose_reduces(ids, files.num_reduces)
        files.ids.write_map(map_name(band), reduce, ids, hash_key)


@dataclass(frozen=True, slots=True)
class IndexedMaps:
    """reduces: those that have records."""

    reduces: tuple[Count, ...]


def index_maps(files: ScanFiles, kind: str, shuffle: Shuffle, names: Sequence[str]) -> IndexedMaps:
    """Index the maps of a shuffle, given in the order in which they are read. kind: its name."""
    counts = shuffle.write_index(names)
    found = IndexedMaps(tuple(np.flatnonzero(counts).tolist()))
    files.save(f"index_{kind}", 0, found)
    return found


@dataclass(frozen=True, slots=True)
class AssignedOwners:
    """What one reduce holds. repeated_ids: unit and row of the first two equal ids."""

    num_distinct: Count
    num_reused: Count
    repeated_ids: tuple[tuple[Count, ...], ...]


def assign_owners(files: ScanFiles, reduce: int) -> AssignedOwners:
    """Write the claims of the texts of one reduce, and find ids that occur twice."""
    claims = [np.empty(0, CLAIM)]
    num_distinct = num_reused = 0
    if files.with_texts:
        for records in files.texts.stream(reduce, hash_key):
            found = find_owners(records, files.num_units)
            claims.append(found)
            is_new = found["owner"] < files.num_units
            is_own = (found["owner"] == found["unit"]) & (found["owner_row"] == found["row"])
            num_distinct += int(is_own.sum())
            num_distinct += len(np.unique(found[~is_new][["owner", "owner_row"]]))
            num_reused += int(found["num_rows"][~is_new].sum())
        every = np.concatenate(claims)
        band = files.bands_of(every["unit"])
        files.claims.write_map(map_name(reduce), band, every, unit_key)
    repeated: list[tuple[int, ...]] = []
    if files.with_ids:
        for records in files.ids.stream(reduce, hash_key):
            repeats = find_repeats(records)[:2]
            repeated += [(int(r["part"]), int(r["row"])) for r in repeats]
            if repeated:
                break
    assigned = AssignedOwners(num_distinct, num_reused, tuple(repeated))
    files.save("assign_owners", reduce, assigned)
    return assigned


@dataclass(frozen=True, slots=True)
class UnitClaims:
    """What a unit must encode itself."""

    unit: Count
    own_rows: Count
    own_chars: Count


@dataclass(frozen=True, slots=True)
class GatheredClaims:
    """The units of a band."""

    units: tuple[UnitClaims, ...]


def gather_claims(
    files: ScanFiles, band: int, units: Sequence[Unit], parts: Sequence[EarlierPart]
) -> GatheredClaims:
    """Write the claims of each of a band's units in a file, and the loans that bring it vectors.

    parts: of the files of these units. A unit reads those near it itself.
    """
    stream = UnitRecords(files.claims.stream(band, unit_key))
    loans, counts = [np.empty(0, LOAN)], []
    for unit in units:
        claims = stream.take(unit.number)
        if claims is None:  # no valid text
            claims = np.empty(0, CLAIM)
        near = [part.number for part in parts if part.is_near(unit)]
        is_far = _is_far(claims, near)
        own = claims["num_chars"][(claims["owner"] == unit.number)]
        counts.append(UnitClaims(unit.number, len(own), int(own.sum())))
        claims, lent = make_loans(claims, is_far, files.num_units)
        loans.append(lent)
        files.storage.put(files.claims_name(unit), claims.tobytes())
    every = np.concatenate(loans)
    files.loans.write_map(map_name(band), files.bands_of(every["owner"]), every, owner_key)
    gathered = GatheredClaims(tuple(counts))
    files.save("gather_claims", band, gathered)
    return gathered


def _is_far(claims: RecordArray, near: Sequence[int]) -> BoolArray:
    """By claim, whether its owner is neither the unit itself nor one of the parts near it."""
    is_far: BoolArray = (claims["owner"] != claims["unit"]) & ~np.isin(claims["owner"], near)
    return is_far
