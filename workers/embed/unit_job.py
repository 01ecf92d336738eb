"""Settings that actors and tasks of an embed job share, and the names of its files.

In:  one UnitJob for the whole job, one Unit per call.
Out: rows read, owners of vectors found, parts written. The commit record is written last, so that
     a unit is done or not done.
"""

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.arrays import BoolArray, RecordArray
from sbert_core.choices import VectorType
from sbert_core.corpus.errors import ChangedFile
from sbert_core.corpus.parquet import count_chars
from sbert_core.corpus.reader import CorpusReader, CorpusRows
from sbert_core.corpus.units import Unit
from sbert_core.data_file import DataFile
from sbert_core.json_record import encode
from sbert_core.storage import Storage, storage_at
from sbert_core.vectors.block import BLOCK_COLUMNS, VectorBlock, read_block
from sbert_core.vectors.part import (
    PartRows,
    PartTables,
    VectorOwners,
    build_part,
    put_table,
    read_document_hashes,
    read_part_block,
)
from sbert_core.vectors.text_owners import (
    CLAIM,
    LENT_BY_EARLIER,
    LENT_BY_UNIT,
    expand_claims,
    find_owners,
    make_records,
    merge_occurrences,
)
from workers.embed.records import CommitRecord, UnitStats
from workers.embed.scan_files import ScanFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJob:
    """Everything that is the same for all units.

    sources: parts of earlier runs, whose vectors are reused; numbered after the units.
    source_paths: the corpus file of each source.
    scanned: where the owners of vectors are; each unit finds repeats within itself if texts were
    not compared.
    metadata: of the schema of each part.
    """

    out: str
    generation: str
    reader: CorpusReader
    num_units: int
    scanned: ScanFiles
    sources: tuple[str, ...]
    source_paths: tuple[str, ...]
    dtype: VectorType
    scale: float | None
    has_chunks: bool
    metadata: dict[str, str]

    @property
    def storage(self) -> Storage:
        """Of the output."""
        return storage_at(self.out)

    @property
    def work(self) -> str:
        """The work folder, below the output."""
        return f"_work/{self.generation}"

    def own_vectors_name(self, unit: Unit) -> str:
        """Vectors of a unit that waits for those of others."""
        return f"{self.work}/stash/{unit.name}"

    def lent_vectors_name(self, unit_number: int) -> str:
        """Vectors of a unit that other units use too."""
        return f"{self.work}/lent/{unit_number:06d}"

    def commit_name(self, unit: Unit) -> str:
        """The commit record of a unit."""
        return f"{self.work}/commits/{unit.name}.json"

    def count_rows(self, refs: RecordArray, num_encoded: int) -> UnitStats:
        """What became of a unit's valid rows, without what the model adds."""
        owner = refs["owner"]
        num_reused = int(((owner >= self.num_units) & (owner != LENT_BY_UNIT)).sum())
        return UnitStats(
            num_encoded=num_encoded,
            num_reused=num_reused,
            num_repeats=len(refs) - num_encoded - num_reused,
        )

    def write_stats(self, unit: Unit, stats: UnitStats) -> None:
        """Save the statistics of a unit."""
        name = f"{self.work}/accounts/{unit.name}.json"
        self.storage.put(name, json.dumps(encode(stats)).encode())

    def read(self, unit: Unit) -> CorpusRows:
        """The rows of a unit that pass the filter."""
        return self.reader.read(unit.path, unit.first_row, unit.num_rows)

    def owner_refs(self, unit: Unit, rows: CorpusRows) -> RecordArray:
        """The CLAIM of the vector of every valid row, in order of rows."""
        is_valid, hashes = rows.hashes
        row = (rows.row - unit.first_row)[is_valid]
        if self.scanned.with_texts:
            data = self.scanned.storage.read(self.scanned.claims_name(unit))
            claims = np.frombuffer(data, CLAIM)
        else:
            claims = self._find_own_owners(unit, rows)
        refs = expand_claims(claims, hashes[is_valid], row)
        if refs is None:
            raise ChangedFile(
                self.reader.root,
                unit.path,
                "changed while it was being embedded; repeat the command when the corpus is at "
                "rest",
            )
        return refs

    def _find_own_owners(self, unit: Unit, rows: CorpusRows) -> RecordArray:
        """Repeats within the unit, and vectors of the same file in earlier runs."""
        is_valid, hashes = rows.hashes
        row = rows.row - unit.first_row
        num_chars = count_chars(rows.texts)
        own = make_records(hashes[is_valid], unit.number, row[is_valid], num_chars[is_valid])
        records = [merge_occurrences(own)]
        for number, (name, path) in enumerate(zip(self.sources, self.source_paths, strict=True)):
            if path == unit.path:
                place, old_hashes, _ = read_document_hashes(self.storage, name)
                records.append(make_records(old_hashes, self.num_units + number, place))
        claims = find_owners(np.concatenate(records), self.num_units)
        ordered: RecordArray = claims[np.argsort(claims["row"])]
        return ordered

    def empty_block(self, dim: int) -> VectorBlock:
        """A block without vectors."""
        columns = {name: np.empty(0, np.int64) for name in BLOCK_COLUMNS}
        return VectorBlock(columns, np.empty((0, dim), self.dtype.value), {})

    def lent_block(self, owner: int) -> VectorBlock:
        """Vectors of a unit that others use too, or of an earlier part."""
        if owner >= self.num_units:
            return read_part_block(self.storage, self.sources[owner - self.num_units])
        return read_block(self.storage, self.lent_vectors_name(owner))

    def commit(
        self,
        unit: Unit,
        rows: PartRows,
        refs: RecordArray,
        own: VectorBlock,
        lent: VectorBlock | None = None,
    ) -> CommitRecord:
        """Write the unit's part and quarantine, then its commit record.

        refs: as of `owner_refs`. own: vectors that this unit has encoded; lent: those that were
        carried to it.
        """

        def block(owner: int) -> VectorBlock:
            if owner == unit.number:
                return own
            if owner in (LENT_BY_UNIT, LENT_BY_EARLIER):
                assert lent is not None, "units that borrow are committed in pass 2"
                return lent
            return read_part_block(self.storage, self.sources[owner - self.num_units])

        owner = VectorOwners(refs["owner"], refs["owner_row"], refs["occurrence"])
        numbers = np.unique(owner.unit).tolist() or [unit.number]
        blocks = ((number, block(number)) for number in numbers)
        part = build_part(rows, owner, blocks, unit=unit.place, has_chunks=self.has_chunks)
        return self._write_commit(unit, len(rows), part)

    def _write_commit(self, unit: Unit, num_rows: int, part: PartTables) -> CommitRecord:
        record = CommitRecord(
            unit=unit.number,
            file=unit.path,
            first_row=unit.first_row,
            num_rows=unit.num_rows,
            rows_in=num_rows,
            documents=part.num_documents,
            truncated=int(np.sum(part.table["truncated"].to_numpy())),
            lost_tokens=int(part.table["num_lost_tokens"].to_numpy().sum()),
            tokens=int(part.table["num_tokens"].to_numpy().sum()),
            data=self._put("data", unit.name, part.table),
            quarantine=self._put("_quarantine", unit.name, part.quarantine)
            if part.quarantine.num_rows
            else None,
        )
        self.storage.put(self.commit_name(unit), record.to_json())
        return record

    def write_empty_part(self, dim: int, types: dict[str, pa.DataType]) -> DataFile:
        """Write a part without rows, so that readers of an empty artifact find its columns.

        types: of the id (`id`) and of carried columns.
        """
        block = self.empty_block(dim)
        none = np.empty(0, np.int64)
        rows = PartRows(
            path="",
            row=none,
            ids=pa.array([], types["id"]),
            hashes=np.empty((0, 2), np.uint64),
            num_chars=none,
            reasons={},
            carried={name: pa.array([], types[name]) for name in self.reader.carry},
        )
        owner = VectorOwners(none, none, none)
        part = build_part(rows, owner, [(0, block)], unit="", has_chunks=self.has_chunks)
        return self._put("data", "000000", part.table)

    def write_corrupt_files(self, reasons: dict[str, str]) -> DataFile:
        """Write the quarantine of whole files. reasons: by path."""
        table = pa.table(
            {
                "id": pa.nulls(len(reasons), pa.string()),
                "unit": pa.nulls(len(reasons), pa.string()),
                "file": pa.array(list(reasons), pa.string()),
                "row": pa.nulls(len(reasons), pa.int64()),
                "reason": pa.array(list(reasons.values()), pa.string()),
            }
        )
        return self._put("_quarantine", "files", table)

    def _put(self, folder: str, label: str, table: pa.Table) -> DataFile:
        name = f"{folder}/{self.generation}/{label}"
        return put_table(self.storage, name, table, self.metadata)


def owned_mask(unit: Unit, refs: RecordArray) -> BoolArray:
    """True for each valid row whose text this unit must encode."""
    mask: BoolArray = (refs["owner"] == unit.number) & (refs["owner_row"] == refs["row"])
    return mask


def borrows_vectors(refs: RecordArray) -> bool:
    """Whether the unit needs vectors that are carried to it."""
    return bool(np.isin(refs["owner"], (LENT_BY_UNIT, LENT_BY_EARLIER)).any())
