"""Actor: units of a corpus -> parts, with one warm encoder."""

import errno
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.corpus.units import Unit
from sbert_core.encoder import Encoder
from sbert_core.encoder.chunking import Long
from sbert_core.encoder.documents import Documents, encoded_documents
from sbert_core.vectors.block import Block, write_block
from sbert_core.vectors.quantize import stored
from workers.common.errors import errors_as_rows
from workers.common.memory import keep_freed_memory, peak_private_bytes, return_freed_memory
from workers.common.model_cache import fetched
from workers.common.progress_board import Board, starting
from workers.embed.isolate import without_deadly
from workers.embed.unit_job import UnitJob, is_own, needs_others

# A unit whose workers died this often is suspected of killing them.
SUSPECT_DEATHS = 2
MAX_DEATHS = 12  # then nothing is tried again: neither a unit nor loading the model
PLAIN_BATCH = 32  # what a plain loop over a model uses by default


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSetup:
    """How every actor of a job loads the pinned model, and the recipe it must then have."""

    model: str
    recipe: str
    prompt: str
    long: Long
    max_length: int
    truncate_dim: int | None
    token_budget: int | None
    precision: str
    threads: int

    def load(self) -> Encoder:
        encoder = Encoder.load(
            fetched(self.model),
            precision=self.precision,
            max_length=self.max_length,
            truncate_dim=self.truncate_dim,
            token_budget=self.token_budget,
            threads=self.threads,
        )
        if encoder.recipe(prompt=self.prompt, long=self.long) != self.recipe:
            raise ValueError(f"the model in {self.model} changed since the job began; start again")
        return encoder

    def encode(
        self, encoder: Encoder, texts: Sequence[object], progress: Callable | None = None
    ) -> Documents:
        return encoded_documents(
            encoder, texts, long=self.long, prompt=self.prompt, progress=progress
        )


class UnitEmbedder:
    """One unit per call. Two calls overlap: one reads or writes while the other has the model."""

    def __init__(self, job: UnitJob, setup: EncoderSetup, board: str) -> None:
        self.job = job
        self.setup = setup
        self.board = Board(board)
        keep_freed_memory()
        self.model_turn = threading.Lock()
        with starting(board) as self.num_load_deaths:
            if self.num_load_deaths < MAX_DEATHS:
                self.encoder = setup.load()

    @errors_as_rows
    def __call__(self, batch: pa.Table) -> pa.Table:
        unit = Unit(**batch.to_pylist()[0])
        start = time.time()
        if self.num_load_deaths >= MAX_DEATHS:
            raise OSError(
                errno.ENOMEM,
                f"a worker died {self.num_load_deaths} times while it loaded the model; look for a "
                "lack of memory",
            )
        with _Deaths(self.job, unit) as deaths:
            if deaths.number >= MAX_DEATHS:
                raise OSError(
                    errno.ENOMEM,
                    f"{deaths.number} workers died on rows {unit.first_row} to "
                    f"{unit.first_row + unit.num_rows} of {unit.path}, even with every row apart; "
                    "look for a lack of memory",
                )
            account = self._embedded(unit, start, deaths)
        return_freed_memory()
        return account

    def _embedded(self, unit: Unit, start: float, deaths: "_Deaths") -> pa.Table:
        rows = self.job.read(unit)
        claims = self.job.claims(unit, rows)
        own = claims[is_own(unit, claims)]
        texts = _texts_at(rows.row - unit.first_row, rows.texts, own["row"])
        with self.model_turn:
            batch_invariant = self.encoder.batch_invariant  # of this very device, tried once
            began = time.time()
            documents = self._documents(unit, texts, deaths)
            seconds = time.time() - began
        block = _block(documents, own["row"].astype(np.int64), self.job)
        account = {
            **self.job.account(claims, len(texts)),
            "num_tokens": int(documents.distinct_lengths.sum()),
            "num_unknown": documents.num_unknown_tokens,
            "num_padding": _num_padding(documents.distinct_lengths),
            "batch_invariant": batch_invariant,
        }
        # Before the vectors: what a rerun finds done it also finds accounted for.
        self.job.keep_account(unit, account)
        if (lent := own["row"][own["is_lent"]]).size:
            write_block(self.job.storage, self.job.lent_name(unit.number), block.only(lent))
        if needs_others(unit, claims, self.job.num_units):
            write_block(self.job.storage, self.job.stash_name(unit), block)
        else:
            self.job.committed(unit, rows, claims, block)
        return pa.Table.from_pylist(
            [
                {
                    "unit": unit.number,
                    **account,
                    "model_seconds": seconds,
                    "num_bad": len(rows.texts) - len(claims) + len(documents.reasons),
                    "num_deaths": deaths.number,
                    "start": start,
                    "private_bytes": peak_private_bytes(),
                }
            ]
        )

    def _documents(self, unit: Unit, texts: list[object], deaths: "_Deaths") -> Documents:
        if deaths.number < SUSPECT_DEATHS:
            documents = self.setup.encode(self.encoder, texts, self.board.add)
        else:
            documents = without_deadly(self.setup, texts)
            self.board.add(len(texts), int(documents.distinct_lengths.sum()))
        self.board.write()
        return documents


def _texts_at(rows: np.ndarray, texts: list, wanted: np.ndarray) -> list[object]:
    places = np.searchsorted(rows, wanted)
    return [texts[place] for place in places.tolist()]


def _block(documents: Documents, rows: np.ndarray, job: UnitJob) -> Block:
    """The documents under the rows they stand in."""
    return Block(
        facts={
            "row": rows[documents.document],
            "chunk": documents.chunk,
            "start_char": documents.start_char,
            "end_char": documents.end_char,
            "num_tokens": documents.num_tokens,
            "num_lost_tokens": documents.num_lost_tokens,
        },
        vectors=stored(documents.vectors, job.dtype, job.scale),
        reasons={int(rows[number]): why for number, why in documents.reasons.items()},
    )


def _num_padding(lengths: np.ndarray) -> int:
    """Padding of plain batches of texts in the order they came."""
    batches = [lengths[i : i + PLAIN_BATCH] for i in range(0, len(lengths), PLAIN_BATCH)]
    return int(sum(len(batch) * batch.max() - batch.sum() for batch in batches))


class _Deaths:
    """How many workers died while they had this unit: marks that nobody took away."""

    def __init__(self, job: UnitJob, unit: Unit) -> None:
        self.storage = job.storage
        self.folder = f"{job.work}/attempts/{unit.name}"
        self.number = sum(1 for _ in self.storage.list(self.folder))
        self.mark = f"{self.folder}/{secrets.token_hex(8)}"
        self.storage.put(self.mark, b"")

    def __enter__(self) -> "_Deaths":
        return self

    def __exit__(self, *error: object) -> None:
        """The worker lives: its mark goes. After success the unit has nothing to answer for."""
        self.storage.delete([self.folder] if error[0] is None else [self.mark])
