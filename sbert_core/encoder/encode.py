"""Texts -> vectors through one encoder: distinct texts -> windows -> batches -> vectors.

In:  an encoder and texts of any kind.
Out: EncodeResult: vectors in input order and counts of texts and tokens.

Tokenising runs ahead of the model; a window is large enough that sorting by length inside it leaves
little to gain, and small enough that a corpus of any size fits.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Protocol

import numpy as np
import torch

from sbert_core.encoder.batching import Batch
from sbert_core.encoder.result import EncodeResult
from sbert_core.encoder.tokenizer import TokenTable
from sbert_core.encoder.transfer import Download
from sbert_core.text import invalid_reason
from sbert_core.threads import map_ahead, parallel_for

log = logging.getLogger(__name__)

# The larger a window, the more texts share a length and with it an attention call.
WINDOW_TEXTS = 4096
WINDOW_CHARS = 8_000_000
# While Python puts the ids of a window into an array, the tokenizer has the other cores for the
# next one. A static model waits for little else: 0.79 of the bare tokenizer's speed with one.
WINDOWS_AHEAD = 2

# Called after each batch with its number of texts and tokens.
Progress = Callable[[int, int], None]


class BatchEncoder(Protocol):
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

    def tokenize(self, texts: list[str]) -> TokenTable:
        """Token ids of valid texts."""
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
    reasons = {row: why for row, text in enumerate(texts) if (why := invalid_reason(text))}
    numbers: dict[object, int] = {}
    number = np.array(
        [
            -1 if row in reasons else numbers.setdefault(text, len(numbers))
            for row, text in enumerate(texts)
        ],
        dtype=np.int64,
    )
    distinct = [str.__str__(text) for text in numbers]  # a StrEnum may override __str__
    encode_pass = EncodePass(encoder, distinct, prompt, num_skipped, normalize)
    encode_pass.run(progress)
    if encode_pass.reasons:
        rows = np.flatnonzero(np.isin(number, list(encode_pass.reasons))).tolist()
        reasons |= {row: encode_pass.reasons[int(number[row])] for row in rows}
    return EncodeResult(
        vectors=scatter(encode_pass.vectors, number, np.nan),
        num_tokens=scatter(encode_pass.num_tokens, number, 0),
        num_lost_tokens=scatter(encode_pass.num_lost, number, 0),
        reasons=dict(sorted(reasons.items())),
        distinct_lengths=encode_pass.num_tokens[encode_pass.num_tokens > 0],
        num_unknown_tokens=encode_pass.num_unknown,
    )


def scatter(values: np.ndarray, number: np.ndarray, missing: float) -> np.ndarray:
    """values[number], with `missing` where the number is -1; no copy if nothing repeats."""
    if len(number) == len(values) and np.array_equal(number, np.arange(len(values))):
        return values
    rows = np.full((len(number), *values.shape[1:]), missing, dtype=values.dtype)
    is_known = number >= 0
    rows[is_known] = values[number[is_known]]
    return rows


class EncodePass:
    """One pass over distinct texts: arrays by text number, filled in by batches in any order."""

    def __init__(
        self,
        encoder: BatchEncoder,
        texts: list[str],
        prompt: str,
        num_skipped: int,
        normalize: bool,
    ) -> None:
        self.encoder = encoder
        self.texts = texts
        self.prompt = prompt
        self.num_skipped = num_skipped
        self.normalize = normalize
        self.vectors = np.full((len(texts), encoder.dim), np.nan, dtype=np.float32)
        self.num_tokens = np.zeros(len(texts), dtype=np.int64)
        self.num_lost = np.zeros(len(texts), dtype=np.int64)
        self.num_unknown = 0
        self.reasons: dict[int, str] = {}
        self.progress: Progress | None = None
        self._downloads: deque[tuple[Batch, Download]] = deque()  # oldest first

    def run(self, progress: Progress | None) -> None:
        """Encode all texts, `encoder.num_parallel` batches at once."""
        self.progress = progress
        with restore_torch_threads(), closing(self._batches()) as batches:
            parallel_for(self._encode, batches, self.encoder.num_parallel)
            self._store_downloads(max_left=0)

    def _windows(self) -> Iterator[tuple[int, list[str]]]:
        """The next texts, with the number of the first."""
        first, num_chars = 0, 0
        for number, text in enumerate(self.texts, start=1):
            num_chars += len(text)
            is_full = number - first == WINDOW_TEXTS or num_chars >= WINDOW_CHARS
            if is_full or number == len(self.texts):
                yield first, self.texts[first:number]
                first, num_chars = number, 0

    def _tokenize(self, window: tuple[int, list[str]]) -> tuple[int, TokenTable]:
        first, texts = window
        if self.prompt:
            texts = [self.prompt + text for text in texts]
        return first, self.encoder.tokenize(texts)

    def _batches(self) -> Generator[Batch, None, None]:
        prompt_alone = self.encoder.tokenize([self.prompt]).ids_T
        for first, window in map_ahead(self._tokenize, self._windows(), WINDOWS_AHEAD):
            lengths = window.lengths.copy()
            for number, reason in self._reasons(first, window, prompt_alone).items():
                self.reasons[first + number] = reason
                lengths[number] = 0
            texts = np.flatnonzero(lengths)
            rows = slice(first, first + len(lengths))
            self.num_tokens[rows] = lengths
            self.num_lost[rows] = window.num_lost * (lengths > 0)
            self.num_unknown += window.num_unknown
            batches = [texts[chosen] for chosen in self.encoder.plan_batches(lengths[texts])]
            if not batches:
                continue
            # The tokens of all batches in their order, so that each batch is a slice.
            ids_T = window.take(np.concatenate(batches))
            end = 0
            for batch in batches:
                start, end = end, end + int(lengths[batch].sum())
                yield Batch.packed(first + batch, lengths[batch], ids_T[start:end])

    def _reasons(self, first: int, window: TokenTable, prompt_alone: np.ndarray) -> dict[int, str]:
        """Why texts of the window cannot be encoded, by their number in it."""
        reasons = dict(window.reasons)
        suspects = np.flatnonzero(window.lengths == len(prompt_alone))
        ids = window.take(suspects).reshape(len(suspects), len(prompt_alone))
        for number in suspects[(ids == prompt_alone).all(axis=1)].tolist():
            if number in reasons:
                continue
            alone, empty = self.encoder.tokenize([self.texts[first + number], ""]).lengths
            if alone <= empty:  # else the prompt and the text have merged into one token
                reasons[number] = "no tokens: the tokenizer drops every character"
        return reasons

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
