"""Task: a unit that borrows vectors -> its part. No model is needed."""

import numpy as np
import pyarrow as pa

from sbert_core.corpus.units import Unit
from sbert_core.vectors.block import FACTS, Block, read_block
from workers.errors import errors_as_rows
from workers.units import UnitJob


class UnitFiller:
    """Commits one unit from its own stash, other units' lent vectors and earlier parts."""

    def __init__(self, job: UnitJob, dim: int) -> None:
        self.job = job
        self.dim = dim

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        unit = Unit(**batch.to_pylist()[0])
        rows = self.job.read(unit)
        claims = self.job.claims(unit, rows)
        own = self._own(unit)
        if own is None:
            self.job.keep_account(unit, self.job.account(claims, num_encoded=0))
        record = self.job.committed(unit, rows, claims, own or self._nothing())
        return pa.table({"unit": [unit.number], "documents": [record["documents"]]})

    def _own(self, unit: Unit) -> Block | None:
        """What pass 1 encoded for this unit, if anything."""
        if self.job.storage.stat(self.job.stash_name(unit)) is None:
            return None
        return read_block(self.job.storage, self.job.stash_name(unit))

    def _nothing(self) -> Block:
        empty = np.empty((0, self.dim), self.job.dtype.value)
        return Block({name: np.empty(0, np.int64) for name in FACTS}, empty, {})
