"""The steps of a unit that need no model: its rows and texts, and the part that is written.

In:  a unit.
Out: ReadUnit and the texts to encode; then, with their vectors, UnitResult.
"""

from dataclasses import dataclass, replace

import numpy as np

from sbert_core.arrays import Int64Array, RecordArray
from sbert_core.corpus.units import Unit
from sbert_core.encoder.documents import DocumentVectors
from sbert_core.vectors.block import VectorBlock, write_block
from sbert_core.vectors.part import PartRows
from sbert_core.vectors.quantize import quantize
from workers.embed.records import CommitRecord, UnitResult, UnitStats
from workers.embed.unit_job import UnitJob, borrows_vectors, owned_mask

PLAIN_BATCH = 32  # default of sentence-transformers; padding that is avoided is counted against it


@dataclass(frozen=True, slots=True)
class ReadUnit:
    """A unit's rows without their texts, and the owner (CLAIM) of each valid one's vector."""

    unit: Unit
    rows: PartRows
    refs: RecordArray

    @property
    def own_rows(self) -> Int64Array:
        """The rows whose texts this unit encodes."""
        rows: Int64Array = self.refs["row"][owned_mask(self.unit, self.refs)].astype(np.int64)
        return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedUnit:
    """What the model made of a unit. start: of the unit, seconds since the epoch.

    device, processor: of the encoder, as in UnitStats.
    """

    read: ReadUnit
    documents: DocumentVectors
    batch_invariant: bool
    device: str
    processor: str
    model_seconds: float
    num_crashes: int
    start: float
    private_bytes: int


def read_unit(job: UnitJob, unit: Unit) -> tuple[ReadUnit, list[object]]:
    """The rows of a unit, and the texts it must encode."""
    rows = job.read(unit)
    read = ReadUnit(unit, PartRows.of(rows), job.owner_refs(unit, rows))
    places = np.searchsorted(rows.row - unit.first_row, read.own_rows)
    return read, [rows.texts[place] for place in places.tolist()]


def write_unit(job: UnitJob, encoded: EncodedUnit) -> UnitResult:
    """Statistics, vectors that others use, then the part; or vectors to wait for others."""
    read, documents = encoded.read, encoded.documents
    block = _to_block(documents, read.own_rows, job)
    stats = replace(
        job.count_rows(read.refs, len(read.own_rows)),
        num_tokens=int(documents.distinct_lengths.sum()),
        num_unknown=documents.num_unknown_tokens,
        num_padding=_count_padding(documents.distinct_lengths),
        batch_invariant=encoded.batch_invariant,
        device=encoded.device,
        processor=encoded.processor,
    )
    return UnitResult(
        unit=read.unit.number,
        stats=stats,
        commit=_write(job, read, block, stats),
        model_seconds=encoded.model_seconds,
        num_bad=len(read.rows.row) - len(read.refs) + len(documents.reasons),
        num_crashes=encoded.num_crashes,
        start=encoded.start,
        private_bytes=encoded.private_bytes,
    )


def _write(
    job: UnitJob, read: ReadUnit, block: VectorBlock, stats: UnitStats
) -> CommitRecord | None:
    unit, refs = read.unit, read.refs
    # Statistics first, so that every unit that a rerun finds done has them.
    job.write_stats(unit, stats)
    own = refs[owned_mask(unit, refs)]
    if (lent := own["row"][own["is_lent"]]).size:
        write_block(job.storage, job.lent_vectors_name(unit.number), block.for_rows(lent))
    if borrows_vectors(refs):
        write_block(job.storage, job.own_vectors_name(unit), block)
        return None
    return job.commit(unit, read.rows, refs, block)


def _to_block(documents: DocumentVectors, rows: Int64Array, job: UnitJob) -> VectorBlock:
    """The vectors as they are stored, by the rows of their documents."""
    return VectorBlock(
        columns={
            "row": rows[documents.document],
            "chunk": documents.chunk,
            "start_char": documents.start_char,
            "end_char": documents.end_char,
            "num_tokens": documents.num_tokens,
            "num_lost_tokens": documents.num_lost_tokens,
        },
        vectors=quantize(documents.vectors, job.dtype, job.scale),
        reasons={int(rows[number]): why for number, why in documents.reasons.items()},
    )


def _count_padding(lengths: Int64Array) -> int:
    """Padding tokens of fixed batches of texts in input order."""
    batches = [lengths[i : i + PLAIN_BATCH] for i in range(0, len(lengths), PLAIN_BATCH)]
    return int(sum(len(batch) * batch.max() - batch.sum() for batch in batches))
