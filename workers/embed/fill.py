"""Task: write the parts of units that use vectors of others. No model is needed."""

from collections.abc import Sequence
from dataclasses import dataclass

from sbert_core.corpus.units import Unit
from sbert_core.vectors.block import read_block
from sbert_core.vectors.part import PartRows
from workers.embed.lend import BorrowedVectors
from workers.embed.records import CommitRecord, UnitStats
from workers.embed.unit_job import UnitJob, borrows_vectors


@dataclass(frozen=True, slots=True)
class FilledUnit:
    """What was committed of a unit. stats: None where pass 1 has stated them."""

    commit: CommitRecord
    stats: UnitStats | None


def fill_units(job: UnitJob, dim: int, band: int, units: Sequence[Unit]) -> list[FilledUnit]:
    """Commit units of one band from their own vectors, lent ones and parts near them.

    dim: of the vectors, for a unit that has none of its own.
    """
    borrowed: BorrowedVectors | None = None
    filled = []
    for unit, rows in job.reader.read_units(units):
        refs = job.owner_refs(unit, rows)
        if job.storage.stat(job.own_vectors_name(unit)) is not None:
            own, stats = read_block(job.storage, job.own_vectors_name(unit)), None
        else:  # pass 1 had nothing to encode for it
            own, stats = job.empty_block(dim), job.count_rows(refs, num_encoded=0)
            job.write_stats(unit, stats)
        lent = None
        if borrows_vectors(refs):
            if borrowed is None:
                borrowed = BorrowedVectors(job.scanned, dim, job.dtype, band)
            lent = borrowed.take(unit)
        filled.append(FilledUnit(job.commit(unit, PartRows.of(rows), refs, own, lent), stats))
    return filled
