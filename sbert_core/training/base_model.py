"""A base model -> the encoder before its first training step.

In:  the folder of an encoder, and the pooling and projection the user wants.
Out: ModelParts with that pooling and a seeded projection; or only its dimension.
Gives up: decoders, which are refused.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from sbert_core.choices import Pooling
from sbert_core.encoder.backbone import is_of_flat_family
from sbert_core.encoder.checkpoint import ModelParts, has_modules, read_parts
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.head import Dense, Normalize
from sbert_core.encoder.limits import (
    output_dim,
    require_pad_token,
    resolve_dim,
    resolve_max_length,
)
from sbert_core.encoder.pretrained import read_skeleton
from sbert_core.encoder.static_model import StaticModel, is_model2vec
from sbert_core.encoder.tokenizer import TextTokenizer
from sbert_core.encoder.untrusted import load_error, read_config

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "spiece.model")
TANH = "torch.nn.modules.activation.Tanh"


@dataclass(frozen=True, slots=True)
class BaseModelInfo:
    """dim: length of a vector. has_unit_vectors: whether the folder normalises them."""

    dim: int
    has_unit_vectors: bool


def load_base_model(
    folder: Path, pooling: str | None, dense: int | None, seed: int, *, with_lengths: bool = False
) -> ModelParts:
    """The base model with another pooling, or with a new projection to `dense` dimensions.

    with_lengths: vectors keep their lengths even if the base makes unit vectors. A softmax head
    that gets numbers of 1/sqrt(dim) learns by turning the vectors instead: from all-MiniLM-L6-v2,
    4,000 rows of NLI end at 48.8 on STSb dev with unit vectors and at 85.8 without.
    Raises ValueError for a decoder, a broken folder, and `pooling` in front of a projection.
    """
    refuse_decoders(folder)
    parts = _adapt(read_parts(folder, None), folder, pooling, dense, seed)
    if with_lengths:
        kept = nn.ModuleList(m for m in parts.head if not isinstance(m, Normalize))
        parts = replace(parts, head=kept)
    return parts


def inspect_base_model(
    folder: Path, pooling: str | None, dense: int | None, max_length: int | None = None
) -> BaseModelInfo:
    """What `load_base_model` and `Encoder` would make, from configuration and tokenizer alone.

    Raises what they raise. Weights are loaded only where the headers of their files do not have
    the names and shapes of the model: older checkpoints, which are converted on loading, and broken
    ones, whose errors only the loading shows.
    """
    refuse_decoders(folder)
    try:
        skeleton = read_parts(folder, None, read_skeleton)
    except Exception:  # noqa: BLE001 - whatever it is, loading finds it again and names it
        parts = load_base_model(folder, pooling, dense, 0)
        dim = Encoder(parts, max_length=max_length).dim
    else:
        parts = _adapt(skeleton, folder, pooling, dense, 0)
        if not is_of_flat_family(parts.model):
            require_pad_token(parts)
        TextTokenizer(
            parts.tokenizer,
            max_length=resolve_max_length(parts, max_length),
            vocab_size=parts.model.config.vocab_size,
            lower_case=parts.config.lower_case,
        )
        dim = output_dim(parts)
        dim = resolve_dim(parts.config.truncate_dim, None, dim) or dim
    return BaseModelInfo(dim, any(isinstance(module, Normalize) for module in parts.head))


def _adapt(
    parts: ModelParts, folder: Path, pooling: str | None, dense: int | None, seed: int
) -> ModelParts:
    """The parts with another pooling, or with a projection in front of their normalisation."""
    if isinstance(parts.model, StaticModel):
        raise ValueError(
            f"{folder} is a static model without layers to train; name a transformer as --base"
        )
    config = parts.config
    if pooling is not None:
        config = replace(config, pooling=(Pooling(pooling),))
    head = [module for module in parts.head if not isinstance(module, Normalize)]
    tail = [module for module in parts.head if isinstance(module, Normalize)]
    if pooling is not None and any(isinstance(module, Dense) for module in head):
        raise ValueError(
            f"{folder} projects vectors of its own pooling; --pooling cannot replace it: "
            "name the plain encoder as --base"
        )
    if dense is not None:
        torch.manual_seed(seed)
        widths = [module.linear.out_features for module in head if isinstance(module, Dense)]
        width = widths[-1] if widths else parts.model.config.hidden_size * len(config.pooling)
        head.append(Dense(nn.Linear(width, dense), TANH))
    modules = nn.ModuleList([*head, *tail[-1:]])
    return ModelParts(config, parts.model, parts.tokenizer, modules)


def refuse_decoders(folder: Path) -> None:
    """Raise ValueError unless the folder holds an encoder and a tokenizer.

    In a decoder a token sees only the tokens before it; this system trains encoders.
    """
    if is_model2vec(folder) or has_modules(folder) and not (folder / "config.json").is_file():
        return  # a static model, or an encoder in a subfolder: checked when it is read
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} holds no model (no config.json); name an encoder's folder")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ValueError(
            f"{folder} has no tokenizer; save one beside the weights (save_pretrained)"
        )
    try:
        kind = read_config(folder).model_type
    except Exception as error:  # noqa: BLE001 - libraries raise anything on a broken folder
        raise load_error(folder, error) from error
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise ValueError(f"{folder} is a decoder ({kind}); use an encoder such as BERT or RoBERTa")
