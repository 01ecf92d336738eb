"""Tasks: hash the texts and ids of a corpus, then find repeats partition by partition.

In:  consecutive units of one file, or parts of earlier runs.
Out: two files of records grouped by partition, and counts per unit; then owner references.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.arrays import Int64Array, RecordArray, UInt64Array
from sbert_core.corpus.errors import MissingId
from sbert_core.corpus.parquet import content_hash, count_chars, hash_texts
from sbert_core.corpus.reader import CorpusReader
from sbert_core.corpus.units import Unit
from sbert_core.storage import storage_at
from sbert_core.vectors.part import read_document_hashes, read_quarantined_ids
from sbert_core.vectors.shuffle import read_group, write_groups
from sbert_core.vectors.text_owners import (
    OWNER_REF,
    TEXT_RECORD,
    assign_partitions,
    find_owners,
    find_repeats,
    make_records,
)


@dataclass(frozen=True, slots=True)
class UnitScan:
    """Counts of a unit: rows that pass the filter, those with a valid text, characters of these."""

    unit: int
    num_rows: int
    num_valid: int
    num_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffle:
    """Where the records are: `folder` below `place`.

    with_texts, with_ids: what is compared across units. Ids that are not a column never repeat.
    """

    place: str
    folder: str
    num_partitions: int
    with_texts: bool
    with_ids: bool

    def write(self, kind: str, name: str, records: list[RecordArray]) -> None:
        """Write the records of one scan, by partition. kind: `texts` or `ids`."""
        every = np.concatenate([np.empty(0, TEXT_RECORD), *records])
        group = assign_partitions(every, self.num_partitions)
        path = f"{self.folder}/{kind}/{name}"
        write_groups(storage_at(self.place), path, group, every, self.num_partitions)

    def read(self, kind: str, names: list[str], partition: int) -> RecordArray:
        """The records of one partition of all scans `names`."""
        storage = storage_at(self.place)
        groups = [
            read_group(
                storage, f"{self.folder}/{kind}/{name}", partition, self.num_partitions, TEXT_RECORD
            )
            for name in names
        ]
        return np.concatenate([np.empty(0, TEXT_RECORD), *groups])


def scan_units(reader: CorpusReader, units: list[Unit], shuffle: Shuffle) -> list[UnitScan]:
    """Hash the texts and ids of consecutive units of one file; counts per unit.

    MissingId for a row without an id.
    """
    texts, ids, counts = [], [], []
    for unit in units:
        num_rows = num_valid = total_chars = 0
        for rows in reader.stream(unit.path, unit.first_row, unit.num_rows):
            is_valid, hashes = hash_texts(rows.texts)
            row = rows.row - unit.first_row
            num_chars = count_chars(rows.texts)
            texts.append(
                make_records(hashes[is_valid], unit.number, row[is_valid], num_chars[is_valid])
            )
            if reader.id_column is not None:
                assert rows.ids is not None
                ids.append(make_records(_hash_ids(rows.ids, rows.path, rows.row), unit.number, row))
            num_rows += len(rows)
            num_valid += int(is_valid.sum())
            total_chars += int(num_chars[is_valid].sum())
        counts.append(UnitScan(unit.number, num_rows, num_valid, total_chars))
    name = units[0].name
    shuffle.write("texts", name, texts if shuffle.with_texts else [])
    shuffle.write("ids", name, ids)
    return counts


def _hash_ids(ids: pa.Array, path: str, row: Int64Array) -> UInt64Array:
    if ids.null_count:
        place = int(row[ids.is_null().to_numpy(zero_copy_only=False)][0])
        raise MissingId(path, place)
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
    """Write hashes of a part of an earlier run; of its ids too, if it is linked whole.

    place, name: of the part. number: of the source, after the units. linked: the unit the part is
    linked as, None if only its vectors are reused. quarantine: file of that unit's other rows.
    """
    position, hashes, ids = read_document_hashes(storage_at(place), name)
    texts = [make_records(hashes, number, position)] if shuffle.with_texts else []
    shuffle.write("texts", f"source-{number:06d}", texts)
    records = []
    if linked is not None and shuffle.with_ids:
        records = [make_records(_hash_ids(ids, name, position), linked, position)]
        if quarantine is not None:
            others = read_quarantined_ids(storage_at(place), quarantine)
            rows = np.arange(len(others))
            records.append(make_records(_hash_ids(others, quarantine, rows), linked, rows))
    shuffle.write("ids", f"source-{number:06d}", records)


@dataclass(frozen=True, slots=True)
class PartitionOwners:
    """What one partition holds, and by unit what must be encoded or borrowed for it.

    repeated_ids: unit and row of the first two equal ids.
    """

    num_distinct: int
    num_reused: int
    own_rows: Int64Array
    own_chars: Int64Array
    num_borrowed: Int64Array
    repeated_ids: list[tuple[int, int]]


def assign_owners(
    shuffle: Shuffle, names: list[str], partition: int, num_units: int
) -> PartitionOwners:
    """Write the owner references of one partition, and find ids that occur twice.

    names: of all scans. num_units: of this run.
    """
    records = shuffle.read("texts", names, partition)
    unit, refs = find_owners(records, num_units)
    write_groups(
        storage_at(shuffle.place),
        f"{shuffle.folder}/claims/{partition:05d}",
        unit,
        refs.astype(OWNER_REF),
        num_units,
    )
    own = (refs["owner_unit"] == unit) & (refs["owner_row"] == refs["row"])
    is_borrowed = (refs["owner_unit"] != unit) & (refs["owner_unit"] < num_units)
    from_source = refs[refs["owner_unit"] >= num_units]
    repeated = find_repeats(shuffle.read("ids", names, partition))
    return PartitionOwners(
        num_distinct=int(own.sum()) + len(np.unique(from_source[["owner_unit", "owner_row"]])),
        num_reused=len(from_source),
        own_rows=np.bincount(unit[own], minlength=num_units),
        own_chars=np.bincount(unit[own], refs["num_chars"][own], num_units).astype(np.int64),
        num_borrowed=np.bincount(unit[is_borrowed], minlength=num_units),
        repeated_ids=[(int(r["unit"]), int(r["row"])) for r in repeated[:2]],
    )
