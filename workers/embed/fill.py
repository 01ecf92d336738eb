"""Task: a unit that borrows vectors -> its part. No model is needed."""

import numpy as np

from sbert_core.corpus.units import Unit
from sbert_core.vectors.block import FACTS, Block, read_block
from workers.embed.unit_job import UnitJob


def fill_unit(job: UnitJob, dim: int, unit: Unit) -> None:
    """Commit a unit from its own stash, other units' lent vectors and earlier parts."""
    rows = job.read(unit)
    claims = job.claims(unit, rows)
    if job.storage.stat(job.stash_name(unit)) is not None:
        own = read_block(job.storage, job.stash_name(unit))
    else:  # pass 1 had nothing to encode for it
        job.keep_account(unit, job.account(claims, num_encoded=0))
        nothing = np.empty((0, dim), job.dtype.value)
        own = Block({name: np.empty(0, np.int64) for name in FACTS}, nothing, {})
    job.committed(unit, rows, claims, own)
