"""Actors: encode units of a corpus with one warm encoder.

UnitEmbedder does all of a unit's work: on a machine without a GPU nothing is gained by carrying it
from process to process. UnitEncoder is the stage in the middle, between those of
`workers/embed/stages.py`: a GPU should do nothing but encode.
"""

import os
import threading
import time

import pyarrow as pa

from sbert_core.corpus.units import Unit
from sbert_core.encoder.documents import DocumentVectors, TokenizedDocuments
from sbert_core.freed_memory import keep_freed_memory, return_freed_memory
from workers.common.errors import errors_as_rows
from workers.common.memory import peak_private_bytes
from workers.common.progress_board import ProgressBoard, agree, count_load_crashes
from workers.embed.crash_counter import MAX_CRASHES, CrashCounter, require_few_crashes
from workers.embed.encoder_config import EncoderConfig
from workers.embed.isolate import encode_excluding_crashers
from workers.embed.stages import TokenizedUnit, pack, unpack
from workers.embed.unit_job import UnitJob
from workers.embed.unit_steps import EncodedUnit, ReadUnit, read_unit, write_unit


class MixedDevices(ValueError):
    """An actor has another kind of device than the first one of the run."""

    def __init__(self, found: str, agreed: str) -> None:
        super().__init__(found, agreed)  # the arguments are what pickle keeps
        self.found, self.agreed = found, agreed

    def __str__(self) -> str:
        return (
            f"an actor encodes on a device of kind {self.found}, others of this run on "
            f"{self.agreed}: their vectors differ in the last digits; use nodes of one kind, or "
            "remove the unfinished work"
        )


class WarmEncoder:
    """The encoder of an actor, for one unit at a time. board: the run on the progress board."""

    def __init__(self, config: EncoderConfig, board: str) -> None:
        self.config = config
        self.board = ProgressBoard(board)
        # Else a tokenizer takes all cores of a node, beside the actors that have them.
        os.environ.setdefault("RAYON_NUM_THREADS", str(config.threads))
        self.turn = threading.Lock()
        with count_load_crashes(board) as self.num_load_crashes:
            if self.num_load_crashes < MAX_CRASHES:
                self.encoder = config.load()
                self.agreed_device = config.device or agree(board, "device", self.device)
        keep_freed_memory()

    @property
    def device(self) -> str:
        """The kind of device it encodes on."""
        return self.encoder.device.type

    def require_usable(self) -> None:
        """OSError if loading has killed too many processes; MixedDevices beside another kind."""
        require_few_crashes(self.num_load_crashes)
        if self.device != self.agreed_device:
            raise MixedDevices(self.device, self.agreed_device)

    def encode(
        self,
        read: ReadUnit,
        source: list[object] | TokenizedDocuments,
        start: float,
        crashes: CrashCounter,
    ) -> EncodedUnit:
        """What the model makes of a unit. source: its texts, or their tokens."""
        with self.turn:
            # Both are measured once per actor.
            batch_invariant, processor = self.encoder.batch_invariant, self.encoder.processor
            began = time.time()
            documents = self._documents(source, crashes)
            seconds = time.time() - began
        return EncodedUnit(
            read=read,
            documents=documents,
            batch_invariant=batch_invariant,
            device=self.device,
            processor=processor,
            model_seconds=seconds,
            num_crashes=crashes.number,
            start=start,
            private_bytes=peak_private_bytes(),
        )

    def _documents(
        self, source: list[object] | TokenizedDocuments, crashes: CrashCounter
    ) -> DocumentVectors:
        if isinstance(source, TokenizedDocuments):
            documents = self.config.encode_tokens(self.encoder, source, self.board.add)
        elif crashes.is_suspect:
            documents = encode_excluding_crashers(self.config, source)
            self.board.add(len(source), int(documents.distinct_lengths.sum()))
        else:
            documents = self.config.encode(self.encoder, source, self.board.add)
        self.board.write()
        return documents


class UnitEmbedder:
    """Embeds one unit per call.

    Two calls run at once: one reads or writes files while the other uses the model.
    """

    def __init__(self, job: UnitJob, config: EncoderConfig, board: str) -> None:
        self.job = job
        self.model = WarmEncoder(config, board)

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Write the part of the unit in the first row of `batch`; a UnitResult as a table."""
        unit = Unit(**batch.to_pylist()[0])
        start = time.time()
        self.model.require_usable()
        with CrashCounter(self.job, unit) as crashes:
            read, texts = read_unit(self.job, unit)
            result = write_unit(self.job, self.model.encode(read, texts, start, crashes))
        return_freed_memory()
        return result.to_table()


class UnitEncoder:
    """Encodes the tokens of one unit per call.

    Two calls run at once: one unpacks or packs while the other uses the model.
    """

    def __init__(self, job: UnitJob, config: EncoderConfig, board: str) -> None:
        self.job = job
        self.model = WarmEncoder(config, board)

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        """An EncodedUnit from the TokenizedUnit in the first row of `batch`."""
        tokenized = unpack(batch, TokenizedUnit)
        self.model.require_usable()
        read, source = tokenized.read, tokenized.tokens
        with CrashCounter(self.job, read.unit, is_last=False) as crashes:
            if source is None or crashes.is_suspect:  # the texts themselves, to find the deadly one
                read, texts = read_unit(self.job, read.unit)
                encoded = self.model.encode(read, texts, tokenized.start, crashes)
            else:
                encoded = self.model.encode(read, source, tokenized.start, crashes)
        table = pack(encoded)
        return_freed_memory()
        return table
