"""Texts -> sentence vectors.

In:  texts of any kind and length, and a folder with a Sentence-BERT or plain encoder.
Out: float32 vectors in input order, and counts of texts and tokens (EncodeResult).

Each distinct text is encoded once. On a CPU every batch runs on one thread and several batches
run at once: 28-39 % faster than one batch on all threads (MiniLM, two cores), and the bits of a
vector do not depend on the number of threads.
"""

import logging
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sbert_core.choices import Pooling, Precision
from sbert_core.digest import digest
from sbert_core.encoder.backbone import choose_backbone, pool_batch
from sbert_core.encoder.batching import Batch, BatchLayout
from sbert_core.encoder.calibration import InputRanges, calibrate, ranges_digest
from sbert_core.encoder.checkpoint import ModelParts, read_parts, write_parts
from sbert_core.encoder.device import (
    TRIED_BUDGETS,
    choose_device,
    default_budget,
    parse_precision,
    resolve_precision,
)
from sbert_core.encoder.encode import Progress, encode_windows, restore_torch_threads
from sbert_core.encoder.fingerprint import network_digest, space_digest
from sbert_core.encoder.fused_linear import LinearFormat
from sbert_core.encoder.head import sentence_vectors
from sbert_core.encoder.hub import resolve_model_folder
from sbert_core.encoder.limits import (
    output_dim,
    require_pad_token,
    require_positive,
    resolve_dim,
)
from sbert_core.encoder.load_tokenizer import make_tokenizer
from sbert_core.encoder.probe import fastest_budget, is_batch_invariant, processor_digest
from sbert_core.encoder.prompts import (
    document_prompt,
    num_skipped_tokens,
    query_prompt,
    resolve_prompt,
)
from sbert_core.encoder.result import EncodedTexts, EncodeResult, suggest_wider_format
from sbert_core.encoder.static_model import StaticModel, static_precision
from sbert_core.encoder.tokenizer import TextTokenizer, TokenTable
from sbert_core.encoder.transfer import Download, choose_downloader
from sbert_core.encoder.untrusted import wrap_load_errors
from sbert_core.encoder.windows import DistinctTexts, token_windows
from sbert_core.freed_memory import keep_some_freed_memory

log = logging.getLogger(__name__)

AUTO = "auto"
MAX_UNKNOWN_SHARE = 0.05


class Encoder:
    """A loaded model: texts -> vectors. Make one with `Encoder.load`.

    >>> encoder = Encoder.load(encoder_folder)   # a folder, or "org/name@revision"
    >>> encoder
    Encoder(dim=32, max_length=64, pooling='mean', layout='flat', device='cpu')
    >>> vectors = encoder.encode(["how many words", "which word", "how many words"])
    >>> vectors.shape
    (3, 32)
    >>> float(vectors[0] @ vectors[2]) > 0.999   # unit vectors: the product is the cosine
    True
    """

    def __init__(
        self,
        parts: ModelParts,
        *,
        device: str | None = None,
        precision: Precision = Precision.FLOAT32,
        max_length: int | None = None,
        truncate_dim: int | None = None,
        token_budget: int | Literal["auto"] | None = None,
        threads: int | None = None,
    ) -> None:
        self.device = choose_device(device)
        if isinstance(parts.model, StaticModel):
            precision = static_precision(precision)
        self.precision = resolve_precision(precision, self.device)
        self._parts = parts
        self._model = parts.model.eval()  # type: ignore[no-untyped-call]
        self._head = parts.head
        is_half = self.device.type == "cuda" and self.precision is not Precision.FLOAT32
        # On a CPU the weights stay as they are, and products of them are packed.
        self._exact_weights = network_digest(parts) if is_half else None
        dtype = getattr(torch, self.precision) if is_half else torch.float32
        self._model.to(device=self.device, dtype=dtype)
        self._head.to(self.device)
        self._tokenizer = make_tokenizer(parts, max_length)
        ranges = self._ranges if self.precision is Precision.INT8 else {}
        self._backbone = choose_backbone(
            self._model,
            self._tokenizer.pad_id,
            self.max_length,
            LinearFormat(self.precision, ranges),
        )
        if self.layout is BatchLayout.PADDED:
            require_pad_token(parts)
        self.full_dim = output_dim(parts)
        self.truncate_dim = resolve_dim(parts.config.truncate_dim, truncate_dim, self.full_dim)
        self.threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        if threads is not None:
            self.threads = require_positive("threads", threads)
        self._downloader = choose_downloader(self.device)
        if self.device.type == "cpu":
            keep_some_freed_memory()
        self._tunes_budget = token_budget == AUTO
        self.token_budget = default_budget(self.device, self.precision, self.threads)
        if token_budget is not None and not self._tunes_budget:
            self.token_budget = require_positive("token_budget", token_budget)

    def __repr__(self) -> str:
        pooling = "+".join(self._parts.config.pooling)
        return (
            f"Encoder(dim={self.dim}, max_length={self.max_length}, pooling={pooling!r}, "
            f"layout={self.layout.value!r}, device={self.device.type!r})"
        )

    @classmethod
    def load(
        cls,
        path_or_hub_id: str | Path,
        *,
        pooling: Pooling | str | None = None,
        device: str | None = None,
        precision: Precision | str = Precision.FLOAT32,
        max_length: int | None = None,
        truncate_dim: int | None = None,
        token_budget: int | Literal["auto"] | None = None,
        threads: int | None = None,
    ) -> "Encoder":
        """Open a sentence-transformers folder, a plain Hugging Face encoder, or `org/name@rev`.

        pooling: for a plain encoder only; a sentence-transformers folder fixes it.
        precision: number format of the products; "auto" is float32 on a CPU, on a GPU bfloat16
            where it has it, else float16.
        max_length: tokens of a text; truncate_dim: leading dimensions to keep.
        token_budget: tokens per batch; "auto" measures a few on the first texts.
        threads: batches that run at once on a CPU, torch's thread count by default; 1 for models
            whose forward is not known to be reentrant.
        Raises ValueError for a folder that does not load or does not support a setting.
        """
        mode = None if pooling is None else Pooling(pooling)
        folder = resolve_model_folder(path_or_hub_id)
        with wrap_load_errors(folder):
            return cls(
                read_parts(folder, mode),
                device=device,
                precision=parse_precision(precision),
                max_length=max_length,
                truncate_dim=truncate_dim,
                token_budget=token_budget,
                threads=threads,
            )

    def save(self, folder: str | Path) -> None:
        """Write a folder that sentence-transformers and `Encoder.load` open."""
        if self._exact_weights is not None:
            raise ValueError(f"saving from {self.precision} would lose digits; load as float32")
        write_parts(self._parts, Path(folder), self.max_length, self.truncate_dim)

    @property
    def layout(self) -> BatchLayout:
        """Flat (no padding) or padded; decided when loading."""
        return self._backbone.layout

    @property
    def num_parallel(self) -> int:
        """Threads that launch batches; a GPU has one, and batches under way instead."""
        is_reentrant = self._backbone.is_reentrant and not self.max_in_flight
        return self.threads if is_reentrant else 1

    @property
    def max_in_flight(self) -> int:
        """Batches that a GPU has at once; 0 on a CPU."""
        return self._downloader.max_in_flight

    @property
    def max_length(self) -> int:
        """Tokens of a text the model sees, special tokens included."""
        return self._tokenizer.max_length

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self.truncate_dim or self.full_dim

    @property
    def prompts(self) -> dict[str, str]:
        """The prompts of the model's folder, by name."""
        return dict(self._parts.config.prompts)

    @property
    def document_prompt(self) -> str:
        """The prompt for the texts of a corpus."""
        return document_prompt(self._parts.config)

    @property
    def query_prompt(self) -> str:
        """The prompt for queries."""
        return query_prompt(self._parts.config)

    def encode(
        self,
        texts: Iterable[object],
        *,
        normalize: bool = True,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> np.ndarray:
        """Vectors of the texts, one row each, in order. Invalid texts give rows of NaN.

        normalize: unit vectors; False gives the output of the folder's last module.
        prompt: goes in front of each text; or `prompt_name`, one of the folder's prompts.
        """
        return self.encode_report(
            texts, normalize=normalize, prompt=prompt, prompt_name=prompt_name
        ).vectors

    def encode_report(
        self,
        texts: Iterable[object],
        *,
        normalize: bool = True,
        prompt: str | None = None,
        prompt_name: str | None = None,
        progress: Progress | None = None,
    ) -> EncodeResult:
        """As `encode`, with counts of texts and tokens and the reasons of invalid texts.

        progress: called after each batch with its number of texts and tokens.
        """
        if isinstance(texts, str):
            raise ValueError("texts is a single string; give a list of texts")
        texts = list(texts)
        prefix = self.resolve_prompt(prompt, prompt_name)
        if self._tunes_budget:
            fastest = fastest_budget(self, texts, TRIED_BUDGETS[self.device.type])
            self.token_budget = fastest or self.token_budget
            self._tunes_budget = fastest is None
        rows, distinct = DistinctTexts.find(texts)
        windows = token_windows(self, distinct, prefix)
        return rows.spread(
            self.encode_windows(
                windows, len(distinct), normalize=normalize, prompt=prefix, progress=progress
            )
        )

    def encode_windows(
        self,
        windows: Iterable[TokenTable],
        num_texts: int,
        *,
        prompt: str,
        normalize: bool = True,
        progress: Progress | None = None,
    ) -> EncodedTexts:
        """Vectors of `num_texts` distinct texts, from tokens that were made with this prompt."""
        encoded = encode_windows(
            self,
            windows,
            num_texts,
            num_skipped=num_skipped_tokens(self._parts.config, self._tokenizer, prompt),
            normalize=normalize,
            progress=progress,
        )
        if self.precision is Precision.FLOAT16:
            encoded = suggest_wider_format(encoded)
        if encoded.unknown_share > MAX_UNKNOWN_SHARE:
            log.warning(
                "%.0f %% of tokens are unknown to the model's vocabulary, so vectors carry "
                "little meaning; use a multilingual model or one for this language",
                100 * encoded.unknown_share,
            )
        return encoded

    @cached_property
    def batch_invariant(self) -> bool:
        """Do a vector's bits depend on its text alone?

        Claimed for the flat layout on a CPU only, where a row of a product has the same bits
        whatever its neighbours are, and measured on this machine (1.4 s for MiniLM). A few equal
        vectors prove nothing for other layouts: of 200 texts, Longformer gave 2 other bits.
        """
        is_claimed = self.layout is BatchLayout.FLAT and self.device.type == "cpu"
        return is_claimed and is_batch_invariant(
            self, self._model.config.vocab_size, self.max_length
        )

    @cached_property
    def processor(self) -> str:
        """Digest of the bits that this processor gives to a few made-up texts."""
        return processor_digest(self, self._model.config.vocab_size, self.max_length)

    @cached_property
    def _ranges(self) -> InputRanges:
        """The ranges that int8 divides into steps."""
        with restore_torch_threads():
            torch.set_num_threads(1)
            return calibrate(self._model, self._tokenizer)

    def space(self, normalize: bool = True) -> str:
        """Digest of the vector space: vectors of equal spaces may be compared."""
        return space_digest(
            self._parts,
            tokenizer=self._tokenizer.identity,
            weights=self._exact_weights,
            truncate_dim=self.truncate_dim,
            normalize=normalize,
        )

    def recipe(
        self,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        long: str = "truncate",
        dtype: str = "float32",
        scale: float | None = None,
        normalize: bool = True,
        precision: Precision | None = None,
    ) -> str:
        """Digest of everything that shapes a stored vector: those of equal recipes may be reused.

        prompt, prompt_name: as in `encode`. long, dtype, scale: how the caller handles long texts
        and stores components. precision: the word to hash, such as `auto`; by default the format
        this encoder has.
        """
        precision = precision or self.precision
        # The steps of int8 shape vectors too; the digests of other formats stay what they were.
        ranges = {"ranges": ranges_digest(self._ranges)} if precision is Precision.INT8 else {}
        return digest(
            {
                "space": self.space(normalize),
                "prompt": self.resolve_prompt(prompt, prompt_name),
                "max_length": self.max_length,
                "truncation_side": self._tokenizer.truncation_side,
                "long": long,
                "precision": precision,
                "dtype": dtype,
                "scale": scale,
                **ranges,
            }
        )

    @torch.inference_mode()
    def launch_batch(self, batch: Batch, normalize: bool = True, num_skipped: int = 0) -> Download:
        """Vectors of one batch, in its order; `num_skipped` leading tokens are not pooled."""
        if self.device.type == "cpu" and torch.get_num_threads() != 1:
            torch.set_num_threads(1)
        return self._downloader.start(self.forward(batch, normalize, num_skipped))

    def forward(self, batch: Batch, normalize: bool = False, num_skipped: int = 0) -> Tensor:
        """As `launch_batch`, on the device and under the caller's autograd mode: for training."""
        pooled = pool_batch(self._backbone, batch, self._parts.config.pooling, num_skipped)
        return sentence_vectors(pooled, self._head, self.truncate_dim, normalize)

    @property
    def token_embedding(self) -> nn.Embedding:
        """The embedding of token ids."""
        embedding: nn.Embedding = self._model.get_input_embeddings()
        return embedding

    @property
    def network(self) -> nn.ModuleDict:
        """The modules whose weights make vectors, for an optimiser to change in place."""
        return nn.ModuleDict({"model": self._model, "head": self._head})

    def plan_batches(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Text numbers of each batch under the present token budget."""
        return self._backbone.batches(lengths, self.token_budget, self.num_parallel)

    def tokenize(self, texts: list[str]) -> TokenTable:
        """Token ids of valid texts."""
        return self._tokenizer.tokenize(texts)

    @property
    def tokenizer(self) -> TextTokenizer:
        """What makes tokens of texts; it needs no weights."""
        return self._tokenizer

    def resolve_prompt(self, prompt: str | None = None, prompt_name: str | None = None) -> str:
        """The prompt to use: the one given, or one of the folder's by its name."""
        return resolve_prompt(self._parts.config, prompt, prompt_name)
