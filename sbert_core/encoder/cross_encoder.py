"""Two texts -> one score (or one per class), both seen by the model at once.

In:  pairs of texts, and a folder with a sequence classifier, or with a plain encoder to give a new
     classification head.
Out: scores in input order. One pass through the model per pair, so slower than comparing vectors,
     and more accurate: for reranking.

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
from sbert_core.encoder.checkpoint import is_static
from sbert_core.encoder.encode import restore_torch_threads
from sbert_core.encoder.hub import resolve_model_folder
from sbert_core.encoder.limits import (
    DEFAULT_LENGTH,
    NO_LIMIT,
    num_positions,
    tokenizer_length,
)
from sbert_core.encoder.pretrained import read_pretrained
from sbert_core.encoder.untrusted import wrap_load_errors
from sbert_core.threads import parallel_for

TOKEN_BUDGET = {"cpu": 2048, "cuda": 16_384}
ACTIVATIONS = {1: "torch.nn.modules.activation.Sigmoid"}  # by number of outputs
NO_ACTIVATION = "torch.nn.modules.linear.Identity"


@dataclass(frozen=True, slots=True)
class PairTokens:
    """Token ids of a pair, and for each token the number of its text (0 or 1)."""

    ids: np.ndarray
    type_ids: np.ndarray


class CrossEncoder:
    """A loaded cross-encoder: pairs of texts -> scores. Make one with `CrossEncoder.load`.

    >>> reranker = CrossEncoder.load(cross_encoder_folder)   # a folder, or "org/name@revision"
    >>> reranker
    CrossEncoder(num_outputs=1, max_length=64, device='cpu')
    >>> scores = reranker.predict([("how many", "about one"), ("how many", "the other way")])
    >>> scores.shape, bool(((0 <= scores) & (scores <= 1)).all())
    ((2,), True)
    """

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
        self.model = model.eval().to(self.device)  # type: ignore[no-untyped-call]
        self.tokenizer = tokenizer
        longest = min(tokenizer_length(tokenizer), num_positions(model))
        longest = longest if longest < NO_LIMIT else DEFAULT_LENGTH
        self.max_length = min(max_length or longest, num_positions(model))
        self._fast = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._fast.no_padding()
        self._fast.enable_truncation(self.max_length, strategy="longest_first")
        self.threads = threads or (torch.get_num_threads() if self.device.type == "cpu" else 1)
        self.has_type_ids = "token_type_ids" in tokenizer.model_input_names

    def __repr__(self) -> str:
        return (
            f"CrossEncoder(num_outputs={self.num_outputs}, max_length={self.max_length}, "
            f"device={self.device.type!r})"
        )

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
        """Open a trained cross-encoder.

        num_outputs: give a plain encoder a new head with so many outputs.
        max_length: tokens of a pair; the model's length by default.
        threads: batches that run at once on a CPU.
        Raises ValueError if the folder has no classification head and `num_outputs` is not given.
        """
        folder = resolve_model_folder(path_or_hub_id)
        if is_static(folder):
            raise ValueError(
                f"{folder} is a static model without layers to score pairs with; use a transformer"
            )
        model, tokenizer, missing = read_pretrained(
            folder, AutoModelForSequenceClassification, num_outputs
        )
        if missing and num_outputs is None:
            raise ValueError(
                f"{folder} is no cross-encoder ({missing[0]} is missing); train one with "
                "sbert train --cross-encoder"
            )
        with wrap_load_errors(folder):
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
        """1 for a score, else the number of classes."""
        return int(self.model.config.num_labels)

    def predict(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """A score in 0..1 for each pair; with several outputs, a row of class scores."""
        tokens = self.tokenize(pairs)
        lengths = np.array([len(pair.ids) for pair in tokens], np.int64)
        scores = np.empty((len(tokens), self.num_outputs), np.float32)

        def score(rows: np.ndarray) -> None:
            if self.device.type == "cpu" and torch.get_num_threads() != 1:
                torch.set_num_threads(1)
            with torch.inference_mode():
                logits = self.forward([tokens[row] for row in rows.tolist()])
                scores[rows] = self._apply_activation(logits).float().cpu().numpy()

        with restore_torch_threads():
            batches = padded_batches(lengths, TOKEN_BUDGET[self.device.type])
            parallel_for(score, batches, self.threads if is_reentrant(self.model) else 1)
        return scores[:, 0] if self.num_outputs == 1 else scores

    def _apply_activation(self, logits_BC: Tensor) -> Tensor:
        return torch.sigmoid(logits_BC) if self.num_outputs == 1 else logits_BC

    def tokenize(self, pairs: Sequence[tuple[str, str]]) -> list[PairTokens]:
        """Both texts in one row of tokens; if they are too long, the longer one is truncated."""
        encodings = self._fast.encode_batch([(a, b) for a, b in pairs])
        return [
            PairTokens(np.array(e.ids, np.int64), np.array(e.type_ids, np.int64)) for e in encodings
        ]

    def forward(self, pairs: Sequence[PairTokens]) -> Tensor:
        """Logits (B, C), before the activation and under the caller's autograd mode."""
        lengths = np.array([len(pair.ids) for pair in pairs])
        is_real_BL = np.arange(lengths.max()) < lengths[:, None]
        inputs = {"attention_mask": is_real_BL.astype(np.int64)}
        ids_BL = np.full(is_real_BL.shape, self.tokenizer.pad_token_id or 0, np.int64)
        ids_BL[is_real_BL] = np.concatenate([pair.ids for pair in pairs])
        inputs["input_ids"] = ids_BL
        if self.has_type_ids:
            type_ids_BL = np.zeros_like(ids_BL)
            type_ids_BL[is_real_BL] = np.concatenate([pair.type_ids for pair in pairs])
            inputs["token_type_ids"] = type_ids_BL
        on_device = {name: torch.from_numpy(x).to(self.device) for name, x in inputs.items()}
        logits_BC: Tensor = self.model(**on_device).logits
        return logits_BC
