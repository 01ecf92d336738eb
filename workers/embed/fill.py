"""Task: write the part of a unit that uses vectors of others. No model is needed."""

from sbert_core.corpus.units import Unit
from sbert_core.vectors.block import read_block
from workers.embed.unit_job import UnitJob


def fill_unit(job: UnitJob, dim: int, unit: Unit) -> None:
    """Commit a unit from its own vectors, shared vectors of other units and earlier parts.

    dim: of the vectors, for a unit that has none of its own.
    """
    rows = job.read(unit)
    refs = job.owner_refs(unit, rows)
    if job.storage.stat(job.own_vectors_name(unit)) is not None:
        own = read_block(job.storage, job.own_vectors_name(unit))
    else:  # pass 1 had nothing to encode for it
        job.write_stats(unit, job.count_rows(refs, num_encoded=0))
        own = job.empty_block(dim)
    job.commit(unit, rows, refs, own)
