"""Task: rows of a corpus -> hashes on disk, for finding repeated texts and ids.

In:  consecutive units of one file, or parts of earlier runs.
Out: two files of records grouped by partition, and counts per unit.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.corpus.parquet import characters_of, content_hash, hashes_of
from sbert_core.corpus.reader import Reading
from sbert_core.corpus.units import Unit
from sbert_core.errors import InputRefused
from sbert_core.storage import storage_at
from sbert_core.vectors.part import document_hashes, quarantined_ids
from sbert_core.vectors.shuffle import read_run, write_runs
from sbert_core.vectors.text_owners import (
    CLAIM,
    RECORD,
    claims_of,
    partition_of,
    records_of,
    repeats_of,
)


@dataclass(frozen=True, slots=True)
class ScanCount:
    """What a unit holds."""

    unit: int
    num_rows: int
    num_valid: int
    num_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffle:
    """Where the records go: `folder` below `place`.

    with_texts, with_ids: what is compared across units. Ids that are no column never repeat.
    """

    place: str
    folder: str
    num_partitions: int
    with_texts: bool
    with_ids: bool

    def write(self, kind: str, name: str, records: list[np.ndarray]) -> None:
        every = np.concatenate([np.empty(0, RECORD), *records])
        group = partition_of(every, self.num_partitions)
        path = f"{self.folder}/{kind}/{name}"
        write_runs(storage_at(self.place), path, group, every, self.num_partitions)

    def read(self, kind: str, names: list[str], partition: int) -> np.ndarray:
        storage = storage_at(self.place)
        runs = [
            read_run(
                storage, f"{self.folder}/{kind}/{name}", partition, self.num_partitions, RECORD
            )
            for name in names
        ]
        return np.concatenate([np.empty(0, RECORD), *runs])


def scan_units(reading: Reading, units: list[Unit], shuffle: Shuffle) -> list[ScanCount]:
    """Hash the texts and ids of some consecutive units of one file."""
    texts, ids, counts = [], [], []
    for unit in units:
        num_rows = num_valid = total_chars = 0
        for rows in reading.stream(unit.path, unit.first_row, unit.num_rows):
            is_valid, hashes = hashes_of(rows.texts)
            row = rows.row - unit.first_row
            num_chars = characters_of(rows.texts)
            texts.append(
                records_of(hashes[is_valid], unit.number, row[is_valid], num_chars[is_valid])
            )
            if reading.id_column is not None:
                assert rows.ids is not None
                ids.append(records_of(_id_hashes(rows.ids, rows.path, rows.row), unit.number, row))
            num_rows += len(rows)
            num_valid += int(is_valid.sum())
            total_chars += int(num_chars[is_valid].sum())
        counts.append(ScanCount(unit.number, num_rows, num_valid, total_chars))
    name = units[0].name
    shuffle.write("texts", name, texts if shuffle.with_texts else [])
    shuffle.write("ids", name, ids)
    return counts


def _id_hashes(ids: pa.Array, path: str, row: np.ndarray) -> np.ndarray:
    if ids.null_count:
        place = int(row[ids.is_null().to_numpy(zero_copy_only=False)][0])
        raise InputRefused(f"row {place} of {path} has no id; fill it in, or use --id content")
    digests = b"".join(content_hash(str(value)) for value in ids.to_pylist())
    return np.frombuffer(digests, ">u8").reshape(-1, 2).astype(np.uint64)


def scan_source(
    place: str,
    name: str,
    number: int,
    linked: int | None,
    quarantine: str | None,
    shuffle: Shuffle,
) -> None:
    """Hashes of a part of an earlier run; of its ids too, if it is taken over whole.

    linked: the unit the part is linked as; `quarantine` holds that unit's other rows.
    """
    position, hashes, ids = document_hashes(storage_at(place), name)
    texts = [records_of(hashes, number, position)] if shuffle.with_texts else []
    shuffle.write("texts", f"source-{number:06d}", texts)
    records = []
    if linked is not None and shuffle.with_ids:
        records = [records_of(_id_hashes(ids, name, position), linked, position)]
        if quarantine is not None:
            others = quarantined_ids(storage_at(place), quarantine)
            rows = np.arange(len(others))
            records.append(records_of(_id_hashes(others, quarantine, rows), linked, rows))
    shuffle.write("ids", f"source-{number:06d}", records)


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """What one partition of the shuffle holds, and what each unit has to do for it."""

    num_distinct: int
    num_reused: int
    own_rows: np.ndarray
    own_chars: np.ndarray
    num_borrowed: np.ndarray
    repeated_ids: list[tuple[int, int]]


def settle(shuffle: Shuffle, names: list[str], partition: int, num_units: int) -> PartitionCount:
    """Write the claims of one partition, and look for ids that occur twice."""
    records = shuffle.read("texts", names, partition)
    unit, claims = claims_of(records, num_units)
    write_runs(
        storage_at(shuffle.place),
        f"{shuffle.folder}/claims/{partition:05d}",
        unit,
        claims.astype(CLAIM),
        num_units,
    )
    own = (claims["owner_unit"] == unit) & (claims["owner_row"] == claims["row"])
    abroad = (claims["owner_unit"] != unit) & (claims["owner_unit"] < num_units)
    from_source = claims[claims["owner_unit"] >= num_units]
    repeated = repeats_of(shuffle.read("ids", names, partition))
    return PartitionCount(
        num_distinct=int(own.sum()) + len(np.unique(from_source[["owner_unit", "owner_row"]])),
        num_reused=len(from_source),
        own_rows=np.bincount(unit[own], minlength=num_units),
        own_chars=np.bincount(unit[own], claims["num_chars"][own], num_units).astype(np.int64),
        num_borrowed=np.bincount(unit[abroad], minlength=num_units),
        repeated_ids=[(int(r["unit"]), int(r["row"])) for r in repeated[:2]],
    )
