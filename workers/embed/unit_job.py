"""What actors and tasks need to know of an embed job, and the names of its files.

In:  one UnitJob for the whole job, one Unit per call.
Out: rows read, claims found, parts written; the order of writes makes each step all or nothing.
"""

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.corpus.parquet import characters_of, hashes_of
from sbert_core.corpus.reader import Reading, Rows
from sbert_core.corpus.units import Unit
from sbert_core.storage import Storage, storage_at
from sbert_core.vectors.block import FACTS, Block, read_block
from sbert_core.vectors.part import (
    Owner,
    Part,
    block_of_part,
    document_hashes,
    part_of,
    put_table,
)
from sbert_core.vectors.quantize import VectorType
from sbert_core.vectors.shuffle import read_run
from sbert_core.vectors.text_owners import CLAIM, claims_of, records_of


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJob:
    """Everything that is the same for all units.

    sources: parts of earlier runs, whose vectors are reused; numbered after the units.
    num_partitions: of the claims on disk; 0 if each unit finds its own.
    """

    out: str
    generation: str
    reading: Reading
    num_units: int
    num_partitions: int
    sources: tuple[str, ...]
    source_paths: tuple[str, ...]
    dtype: VectorType
    scale: float | None
    has_chunks: bool
    metadata: dict[str, str]

    @property
    def storage(self) -> Storage:
        return storage_at(self.out)

    @property
    def work(self) -> str:
        return f"_work/{self.generation}"

    def stash_name(self, unit: Unit) -> str:
        return f"{self.work}/stash/{unit.name}"

    def lent_name(self, unit_number: int) -> str:
        return f"{self.work}/lent/{unit_number:06d}"

    def commit_name(self, unit: Unit) -> str:
        return f"{self.work}/commits/{unit.name}.json"

    def account(self, claims: np.ndarray, num_encoded: int) -> dict[str, int]:
        """What became of a unit's valid rows."""
        num_reused = int((claims["owner_unit"] >= self.num_units).sum())
        return {
            "num_encoded": num_encoded,
            "num_reused": num_reused,
            "num_repeats": len(claims) - num_encoded - num_reused,
            "num_tokens": 0,
        }

    def keep_account(self, unit: Unit, account: dict[str, int]) -> None:
        name = f"{self.work}/accounts/{unit.name}.json"
        self.storage.put(name, json.dumps(account).encode())

    def read(self, unit: Unit) -> Rows:
        """The unit's rows that belong to the job."""
        return self.reading.read(unit.path, unit.first_row, unit.num_rows)

    def claims(self, unit: Unit, rows: Rows) -> np.ndarray:
        """A claim for every valid row, in order of rows."""
        if self.num_partitions:
            runs = [
                read_run(
                    self.storage, f"{self.work}/claims/{p:05d}", unit.number, self.num_units, CLAIM
                )
                for p in range(self.num_partitions)
            ]
            claims = np.concatenate(runs)
        else:
            claims = self._own_claims(unit, rows)
        return claims[np.argsort(claims["row"])]

    def _own_claims(self, unit: Unit, rows: Rows) -> np.ndarray:
        """Repeats within the unit, and vectors of the same file in earlier runs."""
        is_valid, hashes = hashes_of(rows.texts)
        row = rows.row - unit.first_row
        num_chars = characters_of(rows.texts)
        records = [records_of(hashes[is_valid], unit.number, row[is_valid], num_chars[is_valid])]
        for number, (name, path) in enumerate(zip(self.sources, self.source_paths, strict=True)):
            if path == unit.path:
                place, old_hashes, _ = document_hashes(self.storage, name)
                records.append(records_of(old_hashes, self.num_units + number, place))
        return claims_of(np.concatenate(records), self.num_units)[1]

    def block(self, number: int, unit: Unit, own: Block) -> Block:
        """Vectors of another unit or of an earlier part, by its number; `own` are this unit's."""
        if number == unit.number:
            return own
        if number >= self.num_units:
            return block_of_part(self.storage, self.sources[number - self.num_units])
        return read_block(self.storage, self.lent_name(number))

    def committed(self, unit: Unit, rows: Rows, claims: np.ndarray, own: Block) -> dict:
        """Write the unit's part and its commit record; the record says that all is there."""
        owner = Owner(claims["owner_unit"], claims["owner_row"], claims["occurrence"])
        numbers = np.unique(owner.unit).tolist() or [unit.number]
        blocks = ((number, self.block(number, unit, own)) for number in numbers)
        part = part_of(rows, owner, blocks, unit=unit.place, has_chunks=self.has_chunks)
        return self._write(unit, len(rows), part)

    def _write(self, unit: Unit, num_rows: int, part: Part) -> dict:
        record = {
            "unit": unit.number,
            "file": unit.path,
            "first_row": unit.first_row,
            "num_rows": unit.num_rows,
            "rows_in": num_rows,
            "documents": part.num_documents,
            "truncated": int(np.sum(part.table["truncated"].to_numpy())),
            "lost_tokens": int(part.table["num_lost_tokens"].to_numpy().sum()),
            "tokens": int(part.table["num_tokens"].to_numpy().sum()),
            "data": self._put("data", unit.name, part.table),
            "quarantine": self._put("_quarantine", unit.name, part.quarantine)
            if part.quarantine.num_rows
            else None,
        }
        self.storage.put(self.commit_name(unit), json.dumps(record).encode())
        return record

    def empty(self, dim: int, types: dict[str, pa.DataType]) -> dict:
        """A part without rows, so that readers of an empty artifact find its columns.

        types: of ids and carried columns.
        """
        vectors = np.empty((0, dim), self.dtype.value)
        block = Block({name: np.empty(0, np.int64) for name in FACTS}, vectors, {})
        rows = Rows(
            path="",
            row=np.empty(0, np.int64),
            ids=pa.array([], types["id"]),
            texts=[],
            carried={name: pa.array([], types[name]) for name in self.reading.carry},
        )
        none = np.empty(0, np.int64)
        owner = Owner(none, none, none)
        part = part_of(rows, owner, [(0, block)], unit="", has_chunks=self.has_chunks)
        return self._put("data", "000000", part.table)

    def corrupt(self, reasons: dict[str, str]) -> dict:
        """A quarantine of whole files."""
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

    def _put(self, folder: str, label: str, table: pa.Table) -> dict:
        name = f"{folder}/{self.generation}/{label}"
        return put_table(self.storage, name, table, self.metadata)


def is_own(unit: Unit, claims: np.ndarray) -> np.ndarray:
    """Which valid rows this unit must encode."""
    return (claims["owner_unit"] == unit.number) & (claims["owner_row"] == claims["row"])


def needs_others(unit: Unit, claims: np.ndarray, num_units: int) -> bool:
    """Does the unit borrow from units of this run?"""
    owner = claims["owner_unit"]
    return bool(((owner != unit.number) & (owner < num_units)).any())
