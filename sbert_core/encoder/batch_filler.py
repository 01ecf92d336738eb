"""Flat batches of few sizes: dummy texts of one token fill a batch up to a rounded size."""

import numpy as np
import torch

from sbert_core.encoder.batching import Batch, Group

# A matrix product of very few rows takes another kernel and gives other last bits: MiniLM on a CPU
# repeated its bits from 12 tokens up. Shorter batches are filled up with dummy texts of one token.
MIN_FLAT_TOKENS = 64
# oneDNN builds a kernel for each number of tokens it meets (0.4-2 ms, 200 kB), so numbers are
# rounded up: by 1/128 of a full batch for those that are nearly full, as most are, by 1/16 for the
# rest of a window. That leaves 30 of them.
FULL_STEPS, PART_STEPS = 128, 16
LEAST_STEP = 16


class BatchFiller:
    """Fills batches up. pad_id: the token of the dummy texts."""

    def __init__(self, pad_id: int) -> None:
        self.pad_id = pad_id
        self.full_tokens = MIN_FLAT_TOKENS  # of the largest batch so far, or somewhat more

    def fill_up(self, batch: Batch) -> Batch:
        """The batch with dummy texts behind it, up to a rounded number of tokens."""
        step = LEAST_STEP  # with gradients, independent of the batches that came before
        if not torch.is_grad_enabled():
            while self.full_tokens < batch.num_tokens:
                self.full_tokens *= 2
            is_full = batch.num_tokens > self.full_tokens * 7 // 8
            step = max(LEAST_STEP, self.full_tokens // (FULL_STEPS if is_full else PART_STEPS))
        num_missing = max(MIN_FLAT_TOKENS - batch.num_tokens, -batch.num_tokens % step)
        if num_missing == 0:
            return batch
        return Batch(
            rows=batch.rows,
            lengths=np.append(batch.lengths, np.ones(num_missing, np.int64)),
            ids_T=np.append(batch.ids_T, np.full(num_missing, self.pad_id)),
            groups=(*batch.groups, Group(len(batch.rows), batch.num_tokens, num_missing, 1)),
        )
