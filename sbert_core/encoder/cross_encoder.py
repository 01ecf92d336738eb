"""Two texts -> one score (or one per class), both seen by the model at once.

In:  pairs of texts, and a folder with a sequence classifier or a plain encoder to make one of.
Out: scores in input order. Slower than vectors by the number of pairs, and better: for reranking.

The folder is what sentence-transformers' CrossEncoder loads and writes.

Shapes: B pairs, L tokens, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers import PreTrainedTokenizerBase as HfTokenizer

from sbert_core.encoder.backbone import is_reentrant
from sbert_core.encoder.batching import padded_batches
from sbert_core.encoder.checkpoint import read_pretrained
from sbert_core.encoder.encode import torch_threads_restored
from sbert_core.encoder.hub import local_folder
from sbert_core.encoder.limits import (
    DEFAULT_LENGTH,
    NO_LIMIT,
    num_positions,
    tokenizer_length,
)
from sbert_core.encoder.untrusted import loading
from sbert_core.threads import on_threads

TOKEN_BUDGET = {"cpu": 2048, "cuda": 16_384}
ACTIVATIONS = {1: "torch.nn.modules.activation.Sigmoid"}  # by number of outputs
NO_ACTIVATION = "torch.nn.modules.linear.Identity"


@dataclass(frozen=True, slots=True)
class PairTokens:
    """A pair as the model sees it: ids, and which text each token belongs to."""

    ids: np.ndarray
    kinds: np.ndarray


class CrossEncoder:
    """A loaded model. Make one with `CrossEncoder.load`."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: HfTokenizer,
        *,
        max_length: int | None = None,
        device: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model = model.eval().to(self.device)
        self.tokenizer = tokenizer
        own = min(tokenizer_length(tokenizer), num_positions(model))
        own = own if own < NO_LIMIT else DEFAULT_LENGTH
        self.max_length = min(max_length or own, num_positions(model))
        self._fast = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._fast.no_padding()
        self._fast.enable_truncation(self.max_length, strategy="longest_first")
        self.threads = threads or (torch.get_num_threads() if self.device.type == "cpu" else 1)
        self.takes_kinds = "token_type_ids" in tokenizer.model_input_names

    @classmethod
    def load(
        cls,
        path_or_hub_id: str | Path,
        *,
        num_outputs: int | None = None,
        max_length: int | None = None,
        device: str | None = None,
        threads: int | None = None,
    ) -> "CrossEncoder":
        """Open a trained cross-encoder; with `num_outputs`, give a plain encoder a new head."""
        folder = local_folder(path_or_hub_id)
        model, tokenizer, missing = read_pretrained(
            folder, AutoModelForSequenceClassification, num_outputs
        )
        if missing and num_outputs is None:
            raise ValueError(
                f"{folder} is no cross-encoder ({missing[0]} is missing); train one with "
                "sbert train --cross-encoder"
            )
        with loading(folder):
            return cls(model, tokenizer, max_length=max_length, device=device, threads=threads)

    def save(self, folder: str | Path) -> None:
        """Write a folder that sentence-transformers' CrossEncoder and `load` open."""
        name = ACTIVATIONS.get(self.num_outputs, NO_ACTIVATION)
        self.model.config.sentence_transformers = {"activation_fn": name, "version": "5.0.0"}
        self.tokenizer.model_max_length = self.max_length
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    @property
    def num_outputs(self) -> int:
        return int(self.model.config.num_labels)

    def predict(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """A score in 0..1 for each pair; with several outputs, a row of class scores."""
        tokens = self.tokens_of(pairs)
        lengths = np.array([len(pair.ids) for pair in tokens], np.int64)
        found = np.empty((len(tokens), self.num_outputs), np.float32)

        def score(rows: np.ndarray) -> None:
            if self.device.type == "cpu" and torch.get_num_threads() != 1:
                torch.set_num_threads(1)
            with torch.inference_mode():
                logits = self.forward([tokens[row] for row in rows.tolist()])
                found[rows] = self._activated(logits).float().cpu().numpy()

        with torch_threads_restored():
            batches = padded_batches(lengths, TOKEN_BUDGET[self.device.type])
            on_threads(score, batches, self.threads if is_reentrant(self.model) else 1)
        return found[:, 0] if self.num_outputs == 1 else found

    def _activated(self, logits_BC: Tensor) -> Tensor:
        return torch.sigmoid(logits_BC) if self.num_outputs == 1 else logits_BC

    def tokens_of(self, pairs: Sequence[tuple[str, str]]) -> list[PairTokens]:
        """Both texts in one row of tokens; the longer one is cut where they are too long."""
        encodings = self._fast.encode_batch([(a, b) for a, b in pairs])
        return [
            PairTokens(np.array(e.ids, np.int64), np.array(e.type_ids, np.int64)) for e in encodings
        ]

    def forward(self, pairs: Sequence[PairTokens]) -> Tensor:
        """Outputs before any activation, under whatever autograd mode is on."""
        lengths = np.array([len(pair.ids) for pair in pairs])
        is_real_BL = np.arange(lengths.max()) < lengths[:, None]
        inputs = {"attention_mask": is_real_BL.astype(np.int64)}
        ids_BL = np.full(is_real_BL.shape, self.tokenizer.pad_token_id or 0, np.int64)
        ids_BL[is_real_BL] = np.concatenate([pair.ids for pair in pairs])
        inputs["input_ids"] = ids_BL
        if self.takes_kinds:
            inputs["token_type_ids"] = np.zeros_like(ids_BL)
            inputs["token_type_ids"][is_real_BL] = np.concatenate([pair.kinds for pair in pairs])
        on_device = {name: torch.from_numpy(x).to(self.device) for name, x in inputs.items()}
        return self.model(**on_device).logits
