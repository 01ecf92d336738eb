"""Static models: the vector of a text is the average of its tokens' embeddings.

In:  a folder of sentence-transformers' StaticEmbedding or of model2vec.
Out: StaticModel and its tokenizer; a backbone that pools without states in between.
Gives up: training, and formats other than float32. model2vec's own rules for unknown tokens:
          vectors are those of sentence-transformers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from sbert_core.choices import Precision
from sbert_core.encoder.batching import Batch, BatchLayout, Group, flat_batches
from sbert_core.encoder.transfer import upload
from sbert_core.encoder.untrusted import UntrustedJson, require_safetensors, wrap_load_errors

WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
MODEL2VEC = "model2vec"
TOKENS_PER_BATCH = 65_536  # a batch costs little, the calls around it do


class StaticConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """Sizes of a static model."""

    model_type = "static_embedding"

    def __init__(self, vocab_size: int = 1, hidden_size: int = 1) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size


class StaticModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """One embedding per token."""

    config_class = StaticConfig

    def __init__(self, weight_VD: Tensor) -> None:
        super().__init__(StaticConfig(*weight_VD.shape))
        self.embedding = nn.Embedding(len(weight_VD), weight_VD.shape[1], _weight=weight_VD)

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of token ids."""
        embedding: nn.Embedding = self.embedding
        return embedding

    def save(self, folder: Path, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        """Write weights and tokenizer as sentence-transformers' StaticEmbedding names them.

        max_length: tokens of a text; its tokenizer does the truncation.
        """
        weights = {"embedding.weight": self.embedding.weight.detach().contiguous()}
        save_file(weights, folder / WEIGHTS)
        saved = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        saved.enable_truncation(max_length, direction=tokenizer.truncation_side)
        saved.save(str(folder / TOKENIZER))


class StaticBackbone:
    """Averages embeddings of tokens."""

    layout: ClassVar[BatchLayout] = BatchLayout.FLAT
    is_reentrant = True

    def __init__(self, model: StaticModel) -> None:
        self.model = model

    def batches(self, lengths: np.ndarray, budget: int, num_parallel: int) -> list[np.ndarray]:
        """Text numbers of batches of at most `budget` tokens, or many more."""
        return flat_batches(lengths, max(budget, TOKENS_PER_BATCH), num_parallel)

    def blocks(self, batch: Batch) -> Iterator[tuple[Group, Tensor]]:
        """Embeddings (N, L, D) of each group."""
        x_TD = self.model.embedding(upload(batch.ids_T, self.model.device))
        for group in batch.groups:
            yield group, x_TD[group.tokens].view(group.num_texts, group.length, -1)

    def mean_vectors(self, batch: Batch) -> Tensor:
        """The average of each text's embeddings, without the embeddings in between."""
        starts = np.cumsum(batch.lengths) - batch.lengths
        device = self.model.device
        return F.embedding_bag(
            upload(batch.ids_T, device),
            self.model.embedding.weight,
            upload(starts, device),
            mode="mean",
        )


def static_precision(wanted: Precision) -> Precision:
    """The only format of a static model; ValueError if another one is wanted."""
    if wanted not in (Precision.AUTO, Precision.FLOAT32):
        raise ValueError(
            f"precision {wanted} would only lose digits: a static model has no products to speed "
            "up; use float32 or auto"
        )
    return Precision.FLOAT32


def is_model2vec(folder: Path) -> bool:
    """Is this a folder that model2vec saved, without modules of sentence-transformers?"""
    return UntrustedJson(folder / "config.json").values.get("model_type") == MODEL2VEC


def is_normalized(folder: Path) -> bool:
    """Does a model2vec folder request unit vectors?"""
    return bool(UntrustedJson(folder / "config.json").get("normalize", bool))


def read_static(folder: Path) -> tuple[StaticModel, PreTrainedTokenizerFast]:
    """The model and tokenizer of a folder; ValueError if they do not load or fit together."""
    require_safetensors(folder)
    with wrap_load_errors(folder):
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        weight_VD = _read_weight(load_file(folder / WEIGHTS), folder)
    # Averages are over the words of a text alone: no special token goes around it.
    tokenizer.post_processor = TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    truncation = tokenizer.truncation or {"max_length": None, "direction": "right"}
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        model_max_length=truncation["max_length"],
        truncation_side=truncation["direction"],
        unk_token=_unknown_token(tokenizer),
    )
    return StaticModel(weight_VD), fast


def _unknown_token(tokenizer: Tokenizer) -> str | None:
    """The token that counts as unknown, if naming it adds nothing to the tokenizer."""
    name: str | None = getattr(tokenizer.model, "unk_token", None)
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    return name if name in added else None


def _read_weight(weights: dict[str, Tensor], folder: Path) -> Tensor:
    """One row per token id, whichever library wrote the file."""
    if "embedding.weight" in weights:
        return _require_table(weights["embedding.weight"].float(), folder)
    if "embeddings" not in weights:
        raise ValueError(
            f"{folder}: {WEIGHTS} holds {', '.join(sorted(weights)) or 'nothing'}; expected "
            "embedding.weight or embeddings"
        )
    weight_VD = weights["embeddings"].float()
    if (mapping := weights.get("mapping")) is not None:  # tokens that share a row
        weight_VD = weight_VD[mapping.long()]
    if (importance := weights.get("weights")) is not None:  # often float64, rounded at the end
        weight_VD = (weight_VD * importance[:, None]).float()
    return _require_table(weight_VD, folder)


def _require_table(weight_VD: Tensor, folder: Path) -> Tensor:
    if weight_VD.dim() != 2 or not weight_VD.numel():
        raise ValueError(f"{folder}: embeddings of shape {list(weight_VD.shape)} are not a table")
    return weight_VD.contiguous()
