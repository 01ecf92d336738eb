"""Texts -> sentence vectors.

In:  texts of any kind and length, and a folder with a Sentence-BERT or plain encoder.
Out: float32 vectors in input order, and an account of every text and token (Encoded).

Each distinct text is encoded once. On a CPU every batch runs on one thread and several batches
run at once: 28-39 % faster than one batch on all threads (MiniLM, two cores), and the bits of a
vector do not depend on the number of threads.
"""

import logging
from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sbert_core.digest import digest
from sbert_core.encoder.backbone import backbone_for
from sbert_core.encoder.batching import Batch, BatchPath
from sbert_core.encoder.checkpoint import Parts, read_parts, write_parts
from sbert_core.encoder.encode import Progress, encoded_texts
from sbert_core.encoder.fingerprint import architecture, weights_digest
from sbert_core.encoder.head import Dense, sentence_vectors
from sbert_core.encoder.hub import local_folder
from sbert_core.encoder.limits import checked_dim, checked_length, positive
from sbert_core.encoder.pooling import Pooling, pool
from sbert_core.encoder.probe import best_budget, is_batch_invariant
from sbert_core.encoder.prompts import chosen_prompt, document_prompt, query_prompt
from sbert_core.encoder.result import Encoded
from sbert_core.encoder.tokenizer import TextTokenizer, TokenPlaces, Tokens
from sbert_core.encoder.untrusted import loading

log = logging.getLogger(__name__)

AUTO = "auto"
# Fewer, larger batches waste less on rounding (4096 was 2.5 % faster than 1024 for MiniLM on one
# thread), but several threads share the end of the work better when batches are small (1024 was
# 4 % faster than 512, equal to 1536, on two). The GPU figure is not measured.
DEFAULT_BUDGET = {"cpu": 1024, "cuda": 16_384}
ONE_THREAD_BUDGET = 4096
TRIED_BUDGETS = {"cpu": (512, 1024, 2048, 4096), "cuda": (4096, 8192, 16_384, 32_768, 65_536)}
MAX_UNKNOWN_SHARE = 0.05


class Precision(StrEnum):
    """Number format of weights and states. Vectors leave as float32 in any case."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Encoder:
    """A loaded model. Make one with `Encoder.load`."""

    def __init__(
        self,
        parts: Parts,
        *,
        device: str | None = None,
        precision: Precision = Precision.FLOAT32,
        max_length: int | None = None,
        truncate_dim: int | None = None,
        token_budget: int | Literal["auto"] | None = None,
        threads: int | None = None,
    ) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if self.device.type not in DEFAULT_BUDGET:
            raise ValueError(f"device {device!r} is not supported; use one of {[*DEFAULT_BUDGET]}")
        self.precision = Precision(precision)
        if self.device.type == "cpu" and self.precision is not Precision.FLOAT32:
            # Slower there than float32, and oneDNN dies with an illegal instruction on some
            # virtual machines that announce AMX without having it.
            raise ValueError(f"precision {self.precision} needs a GPU; use float32 on a CPU")
        self._parts = parts
        self._model = parts.model.eval()
        self._head = parts.head
        self._exact_weights = None if self._is_exact else self._weights()
        self._model.to(device=self.device, dtype=getattr(torch, self.precision))
        self._head.to(self.device)
        self._tokenizer = TextTokenizer(
            parts.tokenizer,
            max_length=checked_length(parts, max_length),
            vocab_size=self._model.get_input_embeddings().num_embeddings,
            lower_case=parts.layout.lower_case,
        )
        self._backbone = backbone_for(self._model, self._tokenizer.pad_id, self.max_length)
        self.full_dim = self._full_dim()
        self.truncate_dim = checked_dim(parts.layout.truncate_dim, truncate_dim, self.full_dim)
        on_cpu = self.device.type == "cpu"
        self.threads = torch.get_num_threads() if on_cpu else 1
        if threads is not None:
            self.threads = positive("threads", threads)
        self._tunes_budget = token_budget == AUTO
        self.token_budget = DEFAULT_BUDGET[self.device.type]
        if on_cpu and self.threads == 1:
            self.token_budget = ONE_THREAD_BUDGET
        if token_budget is not None and not self._tunes_budget:
            self.token_budget = positive("token_budget", token_budget)

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

        pooling: for a plain encoder only; a sentence-transformers folder has its own.
        token_budget: tokens per batch; "auto" tries a few on the first texts.
        threads: batches that run at once on a CPU; as many as torch would use by default. Models
            whose forward is not known to bear it take one at a time.
        """
        mode = None if pooling is None else Pooling(pooling)
        folder = local_folder(path_or_hub_id)
        with loading(folder):
            return cls(
                read_parts(folder, mode),
                device=device,
                precision=Precision(precision),
                max_length=max_length,
                truncate_dim=truncate_dim,
                token_budget=token_budget,
                threads=threads,
            )

    def save(self, folder: str | Path) -> None:
        """Write a folder that sentence-transformers and `Encoder.load` open."""
        if not self._is_exact:
            raise ValueError(f"saving from {self.precision} would lose digits; load as float32")
        write_parts(self._parts, Path(folder), self.max_length, self.truncate_dim)

    @property
    def path(self) -> BatchPath:
        """Flat (no padding) or padded; found out when loading."""
        return self._backbone.path

    @property
    def num_at_once(self) -> int:
        """Batches that run at once."""
        return self.threads if self._backbone.is_reentrant else 1

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
        """Texts the model wants in front of its inputs, by name."""
        return dict(self._parts.layout.prompts)

    @property
    def document_prompt(self) -> str:
        """What belongs in front of the texts of a corpus: the folder's prompt for them, if any."""
        return document_prompt(self._parts.layout)

    @property
    def query_prompt(self) -> str:
        """What belongs in front of a query."""
        return query_prompt(self._parts.layout)

    def encode(
        self,
        texts: Iterable[object],
        *,
        normalize: bool = True,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> np.ndarray:
        """Vectors of the texts, one row each, in order. Invalid texts give rows of NaN.

        normalize: unit vectors; False gives the folder's own output.
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
    ) -> Encoded:
        """As `encode`, with the account of texts and tokens.

        progress: called after each batch with its number of texts and tokens.
        """
        if isinstance(texts, str):
            raise ValueError("texts is a single string; give a list of texts")
        texts = list(texts)
        prefix = self._prompt(prompt, prompt_name)
        if self._tunes_budget:
            fastest = best_budget(self, texts, TRIED_BUDGETS[self.device.type])
            self.token_budget = fastest or self.token_budget
            self._tunes_budget = fastest is None
        encoded = encoded_texts(
            self,
            texts,
            prompt=prefix,
            num_skipped=self._num_skipped(prefix),
            normalize=normalize,
            progress=progress,
        )
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

        Claimed for the flat path on a CPU only, whose products give a row the same bits whatever
        stands beside it, and tried there on this very machine (0.7 s for MiniLM). A few texts that
        agree prove nothing for other ways to compute: of 200, Longformer gave 2 other bits.
        """
        is_claimed = self.path is BatchPath.FLAT and self.device.type == "cpu"
        return is_claimed and is_batch_invariant(
            self, self._model.config.vocab_size, self.max_length
        )

    @property
    def _is_exact(self) -> bool:
        return self.precision is Precision.FLOAT32

    def _weights(self) -> str:
        head = ((f"head.{name}", weight) for name, weight in self._head.state_dict().items())
        return weights_digest([*self._model.state_dict().items(), *head])

    def space(self, normalize: bool = True) -> str:
        """Name of the vector space: vectors with the same one may be compared."""
        layout = self._parts.layout
        return digest(
            {
                "weights": self._exact_weights or self._weights(),
                "architecture": architecture(self._model.config),
                "tokenizer": self._tokenizer.identity,
                "pooling": list(layout.pooling),
                "include_prompt": layout.include_prompt,
                "head": [repr(module) for module in self._head],
                "truncate_dim": self.truncate_dim,
                "normalize": normalize,
            }
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
    ) -> str:
        """Name of the way vectors are made: those with the same one may be reused.

        The prompt is found as `encode` finds it.
        """
        return digest(
            {
                "space": self.space(normalize),
                "prompt": self._prompt(prompt, prompt_name),
                "max_length": self.max_length,
                "truncation_side": self._tokenizer.truncation_side,
                "long": long,
                "precision": self.precision,
                "dtype": dtype,
                "scale": scale,
            }
        )

    @torch.inference_mode()
    def vectors_of(self, batch: Batch, normalize: bool = True, num_skipped: int = 0) -> np.ndarray:
        """Vectors of one batch, in its order; `num_skipped` prompt tokens are not pooled."""
        if self.device.type == "cpu" and torch.get_num_threads() != 1:
            torch.set_num_threads(1)
        return self.forward(batch, normalize, num_skipped).cpu().numpy()

    def forward(self, batch: Batch, normalize: bool = False, num_skipped: int = 0) -> Tensor:
        """As vectors_of, on the device and under whatever autograd mode is on: for training."""
        modes = self._parts.layout.pooling
        pooled = [pool(states, modes, num_skipped) for _, states in self._backbone.blocks(batch)]
        return sentence_vectors(torch.cat(pooled), self._head, self.truncate_dim, normalize)

    @property
    def word_embedding(self) -> nn.Embedding:
        return self._model.get_input_embeddings()

    @property
    def network(self) -> nn.ModuleDict:
        """The modules whose weights make vectors, for an optimiser to change in place."""
        return nn.ModuleDict({"model": self._model, "head": self._head})

    def batches_of(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Text numbers of each batch under the present token budget."""
        return self._backbone.batches(lengths, self.token_budget)

    def tokens_of(self, texts: list[str]) -> list[Tokens]:
        """Token ids of valid texts."""
        return self._tokenizer(texts)

    def token_places(self, text: str) -> TokenPlaces:
        """Where the tokens of a valid text of any length stand in it."""
        return self._tokenizer.places(text)

    def window_tokens(self, prompt: str | None = None, prompt_name: str | None = None) -> int:
        """Tokens of text the model sees at once, beside the prompt and special tokens."""
        prompt_tokens = self._tokenizer.num_prompt_tokens(self._prompt(prompt, prompt_name))
        return self.max_length - self._tokenizer.num_special - max(0, prompt_tokens - 1)

    def _prompt(self, prompt: str | None, prompt_name: str | None) -> str:
        return chosen_prompt(self._parts.layout, prompt, prompt_name)

    def _num_skipped(self, prompt: str) -> int:
        """Leading tokens that pooling leaves out: the prompt's, if the folder says so."""
        num_prompt_tokens = self._tokenizer.num_prompt_tokens(prompt)
        if num_prompt_tokens >= self.max_length - 1:
            raise ValueError(
                f"a prompt of {num_prompt_tokens} tokens leaves no room for text in "
                f"max_length {self.max_length}; shorten the prompt or raise max_length"
            )
        return 0 if self._parts.layout.include_prompt else num_prompt_tokens

    def _full_dim(self) -> int:
        width = self._model.config.hidden_size * len(self._parts.layout.pooling)
        for linear in (module.linear for module in self._head if isinstance(module, Dense)):
            if linear.in_features != width:
                raise ValueError(
                    f"a Dense module takes {linear.in_features} numbers, what stands before it "
                    f"gives {width}; save the model again"
                )
            width = linear.out_features
        return width
