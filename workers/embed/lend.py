"""Carry vectors from the units and parts that have them to the units that borrow them.

In:  what a band of owners is to lend, and their vectors.
Out: these vectors as a shuffle; for each unit the block of those it borrows.
"""

import json
from dataclasses import dataclass

import numpy as np

from sbert_core.arrays import RecordArray, concat_ranges
from sbert_core.choices import VectorType
from sbert_core.corpus.units import Unit
from sbert_core.vectors.block import BLOCK_COLUMNS, VectorBlock
from sbert_core.vectors.text_owners import owner_key, unit_key
from workers.embed.scan_files import ScanFiles, UnitRecords, map_name
from workers.embed.unit_job import UnitJob

MAP_BYTES = 256 * 2**20  # of vectors in memory; then they become a map
LENT_COLUMNS = BLOCK_COLUMNS[1:]  # the row is that of the borrower


@dataclass(frozen=True, slots=True)
class LentVectors:
    """maps: names of what a band of owners has written."""

    maps: tuple[str, ...]


def lend_vectors(files: ScanFiles, job: UnitJob, dim: int, band: int) -> LentVectors:
    """Task: write what a band of units, or of earlier parts, is to lend."""
    shuffle = files.vectors(dim, job.dtype)
    maps: list[str] = []
    waiting: list[RecordArray] = []
    reasons: dict[int, list[tuple[int, int, str]]] = {}
    most = max(1, MAP_BYTES // shuffle.record.itemsize)

    def flush() -> None:
        every = np.concatenate([np.empty(0, shuffle.record), *waiting])
        maps.append(f"{map_name(band)}-{len(maps):04d}")
        shuffle.write_map(maps[-1], files.bands_of(every["unit"]), every, unit_key)
        waiting.clear()

    owner, block = None, None
    for loans in files.loans.stream(band, owner_key):
        for number in np.unique(loans["owner"]).tolist():
            if block is None or owner != number:
                owner, block = number, job.lent_block(number)
            own = loans[loans["owner"] == number]
            for start in range(0, len(own), most):  # a text may be lent to very many units
                some = own[start : start + most]
                waiting.append(_lent_records(block, some, shuffle.record))
                for unit, row, why in _find_missing(block, some):
                    reasons.setdefault(files.band_of(unit), []).append((unit, row, why))
                if sum(map(len, waiting)) >= most:
                    flush()
    if waiting or not maps:
        flush()
    for borrower, found in reasons.items():
        name = f"{files.reasons_folder(borrower)}/{map_name(band)}.json"
        files.storage.put(name, json.dumps(found).encode())
    lent = LentVectors(tuple(maps))
    files.save("lend_vectors", band, lent)
    return lent


def _lent_records(block: VectorBlock, loans: RecordArray, kind: np.dtype[np.void]) -> RecordArray:
    """A record for each vector of each loan."""
    first, end = block.spans(loans["owner_row"])
    place = concat_ranges(first, end - first)
    records = np.empty(len(place), kind)
    for name in ("unit", "row"):
        records[name] = np.repeat(loans[name], end - first)
    for name in LENT_COLUMNS:
        records[name] = block.columns[name][place]
    records["vector"] = block.vectors[place]
    return records


def _find_missing(block: VectorBlock, loans: RecordArray) -> list[tuple[int, int, str]]:
    """Unit, row and reason of the loans whose owner has no vector."""
    first, end = block.spans(loans["owner_row"])
    return [
        (int(loan["unit"]), int(loan["row"]), block.reasons[int(loan["owner_row"])])
        for loan in loans[first == end]
    ]


class BorrowedVectors:
    """The vectors that the units of a band borrow, in the order of these units."""

    def __init__(self, files: ScanFiles, dim: int, dtype: VectorType, band: int) -> None:
        self._empty = np.empty(0, files.vectors(dim, dtype).record)
        self._records = UnitRecords(files.vectors(dim, dtype).stream(band, unit_key))
        self._reasons: dict[int, dict[int, str]] = {}
        for stat in files.storage.list(files.reasons_folder(band)):
            for unit, row, why in json.loads(files.storage.read(stat.name)):
                self._reasons.setdefault(unit, {})[row] = why

    def take(self, unit: Unit) -> VectorBlock:
        """Those of a unit, by the row that has the text first."""
        records = self._records.take(unit.number)
        if records is None:
            records = self._empty
        return VectorBlock(
            columns={name: records[name].astype(np.int64) for name in BLOCK_COLUMNS},
            vectors=np.ascontiguousarray(records["vector"]),
            reasons=self._reasons.get(unit.number, {}),
        )
