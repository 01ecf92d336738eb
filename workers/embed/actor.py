"""Actor: encode units of a corpus and write their parts, with one warm encoder."""

import errno
import os
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sbert_core.arrays import Int64Array, RecordArray, UInt32Array
from sbert_core.choices import LongTexts, Precision
from sbert_core.corpus.reader import CorpusRows
from sbert_core.corpus.units import Unit
from sbert_core.encoder.documents import DocumentVectors, encode_documents
from sbert_core.encoder.encode import Progress
from sbert_core.encoder.encoder import Encoder
from sbert_core.freed_memory import keep_freed_memory, return_freed_memory
from sbert_core.vectors.block import VectorBlock, write_block
from sbert_core.vectors.quantize import quantize
from workers.common.errors import errors_as_rows
from workers.common.memory import peak_private_bytes
from workers.common.model_cache import fetch_model
from workers.common.progress_board import ProgressBoard, count_load_crashes
from workers.embed.isolate import encode_excluding_crashers
from workers.embed.records import CommitRecord, UnitResult, UnitStats
from workers.embed.unit_job import UnitJob, borrows_vectors, owned_mask

# A unit whose workers crashed this often may hold a text that crashes the encoder.
SUSPECT_CRASHES = 2
MAX_CRASHES = 12  # then neither the unit nor loading the model is tried again
PLAIN_BATCH = 32  # default of sentence-transformers; padding that is avoided is counted against it


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """How every actor of a job loads the model, and the recipe it must have.

    wanted_precision: the word that was given, which the recipe hashes; precision: what it became.
    """

    model: str
    recipe: str
    prompt: str
    long: LongTexts
    max_length: int
    truncate_dim: int | None
    token_budget: int | None
    precision: Precision
    wanted_precision: Precision
    threads: int

    def load(self) -> Encoder:
        """Load the encoder; ValueError if the model is not the one of the job any more."""
        encoder = Encoder.load(
            fetch_model(self.model),
            precision=self.precision,
            max_length=self.max_length,
            truncate_dim=self.truncate_dim,
            token_budget=self.token_budget,
            threads=self.threads,
        )
        recipe = encoder.recipe(prompt=self.prompt, long=self.long, precision=self.wanted_precision)
        if recipe != self.recipe:
            raise ValueError(f"the model in {self.model} changed since the job began; start again")
        return encoder

    def encode(
        self, encoder: Encoder, texts: Sequence[object], progress: Progress | None = None
    ) -> DocumentVectors:
        """Vectors of texts, with the job's prompt and its way with long texts."""
        return encode_documents(
            encoder, texts, long=self.long, prompt=self.prompt, progress=progress
        )


class UnitEmbedder:
    """Embeds one unit per call.

    Two calls run at once: one reads or writes files while the other uses the model. board: the
    name of the run on the progress board.
    """

    def __init__(self, job: UnitJob, config: EncoderConfig, board: str) -> None:
        self.job = job
        self.config = config
        self.board = ProgressBoard(board)
        # Else a tokenizer takes all cores of a node, beside the actors that have them.
        os.environ.setdefault("RAYON_NUM_THREADS", str(config.threads))
        self.model_turn = threading.Lock()
        with count_load_crashes(board) as self.num_load_crashes:
            if self.num_load_crashes < MAX_CRASHES:
                self.encoder = config.load()
        keep_freed_memory()

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        """Write the part of the unit in the first row of `batch`; a UnitResult as a table."""
        unit = Unit(**batch.to_pylist()[0])
        start = time.time()
        if self.num_load_crashes >= MAX_CRASHES:
            raise OSError(
                errno.ENOMEM,
                f"a worker died {self.num_load_crashes} times while it loaded the model; look for "
                "a lack of memory",
            )
        with CrashCounter(self.job, unit) as crashes:
            if crashes.number >= MAX_CRASHES:
                raise OSError(
                    errno.ENOMEM,
                    f"{crashes.number} workers died on rows {unit.first_row} to "
                    f"{unit.first_row + unit.num_rows} of {unit.path}, even with every row apart; "
                    "look for a lack of memory",
                )
            result = self._embed(unit, start, crashes.number)
        return_freed_memory()
        return result.to_table()

    def _embed(self, unit: Unit, start: float, num_crashes: int) -> UnitResult:
        rows = self.job.read(unit)
        refs = self.job.owner_refs(unit, rows)
        own = refs[owned_mask(unit, refs)]
        texts = _take_texts(rows.row - unit.first_row, rows.texts, own["row"])
        with self.model_turn:
            batch_invariant = self.encoder.batch_invariant  # measured once per device
            began = time.time()
            documents = self._encode(texts, num_crashes)
            seconds = time.time() - began
        block = _to_block(documents, own["row"].astype(np.int64), self.job)
        stats = replace(
            self.job.count_rows(refs, len(texts)),
            num_tokens=int(documents.distinct_lengths.sum()),
            num_unknown=documents.num_unknown_tokens,
            num_padding=_count_padding(documents.distinct_lengths),
            batch_invariant=batch_invariant,
        )
        return UnitResult(
            unit=unit.number,
            stats=stats,
            commit=self._write(unit, rows, refs, block, stats),
            model_seconds=seconds,
            num_bad=len(rows.texts) - len(refs) + len(documents.reasons),
            num_crashes=num_crashes,
            start=start,
            private_bytes=peak_private_bytes(),
        )

    def _write(
        self, unit: Unit, rows: CorpusRows, refs: RecordArray, block: VectorBlock, stats: UnitStats
    ) -> CommitRecord | None:
        """Statistics, vectors that others use, then the part; or vectors to wait for others."""
        job = self.job
        # Statistics first, so that every unit that a rerun finds done has them.
        job.write_stats(unit, stats)
        own = refs[owned_mask(unit, refs)]
        if (lent := own["row"][own["is_lent"]]).size:
            write_block(job.storage, job.lent_vectors_name(unit.number), block.for_rows(lent))
        if borrows_vectors(refs):
            write_block(job.storage, job.own_vectors_name(unit), block)
            return None
        return job.commit(unit, rows, refs, block)

    def _encode(self, texts: list[object], num_crashes: int) -> DocumentVectors:
        if num_crashes < SUSPECT_CRASHES:
            documents = self.config.encode(self.encoder, texts, self.board.add)
        else:
            documents = encode_excluding_crashers(self.config, texts)
            self.board.add(len(texts), int(documents.distinct_lengths.sum()))
        self.board.write()
        return documents


def _take_texts(rows: Int64Array, texts: Sequence[object], wanted: UInt32Array) -> list[object]:
    """Texts of wanted rows; `rows` are the sorted row numbers of `texts`."""
    places = np.searchsorted(rows, wanted)
    return [texts[place] for place in places.tolist()]


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


class CrashCounter:
    """Counts crashed attempts at a unit by the marker files they left."""

    def __init__(self, job: UnitJob, unit: Unit) -> None:
        self.storage = job.storage
        self.folder = f"{job.work}/attempts/{unit.name}"
        self.number = sum(1 for _ in self.storage.list(self.folder))
        self.marker = f"{self.folder}/{secrets.token_hex(8)}"
        self.storage.put(self.marker, b"")

    def __enter__(self) -> "CrashCounter":
        return self

    def __exit__(self, *error: object) -> None:
        """Remove this attempt's marker; after success all markers of the unit."""
        self.storage.delete([self.folder] if error[0] is None else [self.marker])
