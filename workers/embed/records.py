"""What is written or sent for each unit of an embed job.

On disk: the commit record and the statistics of a unit, JSON in the job's work folder. From actor
to driver: the result of a call, as one row of a table.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from sbert_core.data_file import DataFile
from sbert_core.json_record import Count, decode, encode, optional
from sbert_core.storage import Storage

READERS = 32  # requests at once: each waits for the store most of its time
SOURCE_KEYS = ("file", "first_row", "num_rows", "documents", "truncated", "lost_tokens", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStats:
    """What became of a unit's valid rows.

    num_encoded: distinct texts that passed the model. num_reused: rows with a vector of an earlier
    run. num_repeats: all others. device: its kind; processor: digest of the bits it gives. Those
    from num_unknown on are None where nothing was encoded.
    """

    num_encoded: Count
    num_reused: Count
    num_repeats: Count
    num_tokens: Count = 0
    num_unknown: Count | None = optional()
    num_padding: Count | None = optional()
    batch_invariant: bool | None = optional()
    device: str | None = optional()
    processor: str | None = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """A unit whose files are written. rows_in: rows that pass the filter; num_rows: before it."""

    unit: Count
    file: str
    first_row: Count
    num_rows: Count
    rows_in: Count
    documents: Count
    truncated: Count
    lost_tokens: Count
    tokens: Count
    data: DataFile
    quarantine: DataFile | None

    def to_json(self) -> bytes:
        """The bytes of the record; its files have no source."""
        fields = encode(self)
        for file in (fields["data"], fields["quarantine"]):
            if file is not None:
                del file["source"]
        return json.dumps(fields).encode()

    def data_files(self) -> tuple[DataFile, DataFile | None]:
        """Data and quarantine as entries of a manifest."""
        source = {key: getattr(self, key) for key in SOURCE_KEYS}
        bad = None if self.quarantine is None else self.quarantine.made_from(**source)
        return self.data.made_from(**source), bad

    def is_whole(self, sizes: Mapping[str, int]) -> bool:
        """Whether the files of the unit exist with their sizes. sizes: of what was found."""
        files = [file for file in (self.data, self.quarantine) if file is not None]
        return all(sizes.get(file.path) == file.bytes for file in files)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult:
    """What an actor reports of a unit.

    commit: None where the unit waits for vectors of others. num_bad: rows without a vector.
    num_crashes: of earlier workers on this unit. start: seconds since the epoch. private_bytes:
    the actor's peak so far.
    """

    unit: Count
    stats: UnitStats
    commit: CommitRecord | None
    model_seconds: float
    num_bad: Count
    num_crashes: Count
    start: float
    private_bytes: Count

    def to_table(self) -> pa.Table:
        """The result as a table of one row."""
        return pa.table({"result": [json.dumps(encode(self))]})

    @classmethod
    def from_table(cls, table: pa.Table) -> "list[UnitResult]":
        """The results of all rows of a table."""
        results = table["result"].to_pylist()
        return [decode(cls, json.loads(one), "the result of a unit") for one in results]


def read_commits(storage: Storage, work: str) -> list[CommitRecord]:
    """All commit records in a work folder, in the order of their names."""
    found = _read_all(storage, f"{work}/commits")
    return [decode(CommitRecord, record, name) for name, record in found.items()]


def read_stats(storage: Storage, work: str) -> dict[int, UnitStats]:
    """Statistics of all units in a work folder, of whichever run of the generation."""
    found = _read_all(storage, f"{work}/accounts")
    return {
        int(name.rpartition("/")[2].removesuffix(".json")): decode(UnitStats, record, name)
        for name, record in found.items()
    }


def _read_all(storage: Storage, folder: str) -> dict[str, object]:
    """All JSON files of a folder by name."""
    names = sorted(stat.name for stat in storage.list(folder))
    with ThreadPoolExecutor(READERS) as pool:
        return dict(zip(names, pool.map(lambda n: json.loads(storage.read(n)), names), strict=True))
