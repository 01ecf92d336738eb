"""Texts -> vectors through one encoder: windows of tokens -> batches -> vectors.

In:  an encoder, and texts of any kind or the tokens of distinct ones.
Out: vectors in input order, and counts of texts and tokens.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Protocol

import numpy as np
import torch

from sbert_core.encoder.batching import Batch
from sbert_core.encoder.result import EncodedTexts, EncodeResult
from sbert_core.encoder.tokenizer import TokenTable
from sbert_core.encoder.transfer import Download
from sbert_core.encoder.windows import DistinctTexts, Tokenizes, token_windows
from sbert_core.threads import parallel_for

log = logging.getLogger(__name__)

# Called after each batch with its number of texts and tokens.
Progress = Callable[[int, int], None]


class BatchEncoder(Tokenizes, Protocol):
    """The part of an encoder that `encode_texts` needs."""

    token_budget: int

    @property
    def num_parallel(self) -> int:
        """Threads that launch batches; 1 where `max_in_flight` is not 0."""
        ...

    @property
    def max_in_flight(self) -> int:
        """Batches a device has at once; 0 if it has finished a batch when that is launched."""
        ...

    @property
    def dim(self) -> int:
        """Length of a vector."""
        ...

    def plan_batches(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Text numbers of each batch under the present token budget."""
        ...

    def launch_batch(self, batch: Batch, normalize: bool, num_skipped: int) -> Download:
        """Vectors of one batch, in its order; `num_skipped` leading tokens are not pooled."""
        ...


def encode_texts(
    encoder: BatchEncoder,
    texts: Sequence[object],
    *,
    prompt: str = "",
    num_skipped: int = 0,
    normalize: bool = True,
    progress: Progress | None = None,
) -> EncodeResult:
    """Encode each distinct valid text once and copy its vector to every row that holds it.

    prompt: goes in front of each text; pooling leaves out `num_skipped` leading tokens.
    """
    rows, distinct = DistinctTexts.find(texts)
    encoded = encode_windows(
        encoder,
        token_windows(encoder, distinct, prompt),
        len(distinct),
        num_skipped=num_skipped,
        normalize=normalize,
        progress=progress,
    )
    return rows.spread(encoded)


def encode_windows(
    encoder: BatchEncoder,
    windows: Iterable[TokenTable],
    num_texts: int,
    *,
    num_skipped: int = 0,
    normalize: bool = True,
    progress: Progress | None = None,
) -> EncodedTexts:
    """Encode `num_texts` distinct texts from the windows of their tokens."""
    encode_pass = EncodePass(encoder, num_texts, num_skipped, normalize)
    encode_pass.run(windows, progress)
    return EncodedTexts(
        vectors=encode_pass.vectors,
        num_tokens=encode_pass.num_tokens,
        num_lost_tokens=encode_pass.num_lost,
        reasons=encode_pass.reasons,
        num_unknown_tokens=encode_pass.num_unknown,
    )


class EncodePass:
    """One pass over distinct texts: arrays by text number, filled in by batches in any order."""

    def __init__(
        self, encoder: BatchEncoder, num_texts: int, num_skipped: int, normalize: bool
    ) -> None:
        self.encoder = encoder
        self.num_skipped = num_skipped
        self.normalize = normalize
        self.vectors = np.full((num_texts, encoder.dim), np.nan, dtype=np.float32)
        self.num_tokens = np.zeros(num_texts, dtype=np.int64)
        self.num_lost = np.zeros(num_texts, dtype=np.int64)
        self.num_unknown = 0
        self.reasons: dict[int, str] = {}
        self.progress: Progress | None = None
        self._downloads: deque[tuple[Batch, Download]] = deque()  # oldest first

    def run(self, windows: Iterable[TokenTable], progress: Progress | None) -> None:
        """Encode all texts, `encoder.num_parallel` batches at once."""
        self.progress = progress
        with restore_torch_threads(), closing(self._batches(windows)) as batches:
            parallel_for(self._encode, batches, self.encoder.num_parallel)
            self._store_downloads(max_left=0)

    def _batches(self, windows: Iterable[TokenTable]) -> Generator[Batch, None, None]:
        first = 0
        for window in windows:
            lengths = window.lengths
            self.reasons |= {first + number: why for number, why in window.reasons.items()}
            texts = np.flatnonzero(lengths)
            rows = slice(first, first + len(lengths))
            self.num_tokens[rows] = lengths
            self.num_lost[rows] = window.num_lost
            self.num_unknown += window.num_unknown
            batches = [texts[chosen] for chosen in self.encoder.plan_batches(lengths[texts])]
            if batches:
                # The tokens of all batches in their order, so that each batch is a slice.
                ids_T = window.take(np.concatenate(batches))
            end = 0
            for batch in batches:
                start, end = end, end + int(lengths[batch].sum())
                yield Batch.packed(first + batch, lengths[batch], ids_T[start:end])
            first += len(lengths)

    def _encode(self, batch: Batch) -> None:
        """Launch a batch; store its vectors, or those of an earlier batch if they take time."""
        max_in_flight = self.encoder.max_in_flight
        if max_in_flight:
            self._store_downloads(max_left=max_in_flight - 1)
        download = self._launch_or_none(batch)
        if download is None:
            for half in batch.halves():
                self._encode(half)
        elif max_in_flight:
            self._downloads.append((batch, download))
        else:
            self._store(batch, download.wait())

    def _store_downloads(self, max_left: int) -> None:
        """Wait for the oldest downloads until `max_left` are under way."""
        while len(self._downloads) > max_left:
            batch, download = self._downloads.popleft()
            self._store(batch, download.wait())

    def _store(self, batch: Batch, vectors: np.ndarray) -> None:
        self.vectors[batch.rows] = vectors
        for row in batch.rows[~np.isfinite(vectors).all(axis=1)].tolist():
            self.vectors[row] = np.nan
            self.reasons[row] = "the model's output is not finite"
        if self.progress is not None:
            self.progress(len(batch.rows), batch.num_tokens)

    def _launch_or_none(self, batch: Batch) -> Download | None:
        """None if the device ran out of memory; then the token budget has been halved."""
        try:
            return self.encoder.launch_batch(batch, self.normalize, self.num_skipped)
        except torch.OutOfMemoryError:
            if len(batch.rows) == 1:
                raise
        torch.cuda.empty_cache()
        budget = min(self.encoder.token_budget, max(1, batch.num_tokens // 2))
        if budget < self.encoder.token_budget:
            log.warning(
                "out of memory with %d tokens; token budget halved to %d", batch.num_tokens, budget
            )
        self.encoder.token_budget = budget
        return None


@contextmanager
def restore_torch_threads() -> Iterator[None]:
    """Restore torch's thread count on exit: encoding sets it to one thread per batch."""
    saved = torch.get_num_threads()
    try:
        yield
    finally:
        if saved != 1:
            torch.set_num_threads(saved)
