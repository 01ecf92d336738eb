"""The stages of a unit before and after the encoder, where a GPU is to do nothing but encode.

In:  a unit, one row of a Ray dataset.
Out: its tokens, packed; then, from what the encoder made of them, the part and its commit. A unit
     stays one row with one large value, so that Ray Data sees its bytes and never splits it.
"""

import os
import pickle
import time
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from sbert_core.corpus.units import Unit
from sbert_core.encoder.documents import TokenizedDocuments
from workers.common.errors import errors_as_rows
from workers.common.progress_board import count_load_crashes
from workers.embed.crash_counter import MAX_CRASHES, CrashCounter, require_few_crashes
from workers.embed.encoder_config import EncoderConfig
from workers.embed.unit_job import UnitJob
from workers.embed.unit_steps import EncodedUnit, ReadUnit, read_unit, write_unit

PAYLOAD = "payload"

Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True)
class TokenizedUnit:
    """tokens: None for a unit that may hold a text that crashes its process."""

    read: ReadUnit
    tokens: TokenizedDocuments | None
    start: float


class UnitTokenizer:
    """Actor: reads a unit and tokenises what it must encode, on one core."""

    def __init__(self, job: UnitJob, config: EncoderConfig, board: str) -> None:
        self.job = job
        self.config = config
        os.environ.setdefault("RAYON_NUM_THREADS", "1")
        with count_load_crashes(board) as self.num_load_crashes:
            if self.num_load_crashes < MAX_CRASHES:
                self.tokenizer = config.load_tokenizer()

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        """A TokenizedUnit from the unit in the first row of `batch`."""
        unit = Unit(**batch.to_pylist()[0])
        start = time.time()
        require_few_crashes(self.num_load_crashes)
        with CrashCounter(self.job, unit, is_last=False) as crashes:
            read, texts = read_unit(self.job, unit)
            tokens = None
            if not crashes.is_suspect:
                tokens = self.config.tokenize(self.tokenizer, texts)
        return pack(TokenizedUnit(read, tokens, start))


@errors_as_rows
def write_encoded(job: UnitJob, batch: pa.Table) -> pa.Table:
    """Task: write the part of the EncodedUnit in the first row of `batch`; a UnitResult."""
    encoded = unpack(batch, EncodedUnit)
    with CrashCounter(job, encoded.read.unit):
        return write_unit(job, encoded).to_table()


def pack(value: object) -> pa.Table:
    """A value of ours as one row."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return pa.table({PAYLOAD: pa.array([data], pa.large_binary())})


def unpack(batch: pa.Table, kind: type[Payload]) -> Payload:
    """The value of the first row."""
    value = pickle.loads(batch[PAYLOAD][0].as_buffer())
    assert isinstance(value, kind), "stages follow each other"
    return value
