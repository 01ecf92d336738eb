"""A base model -> what is to be trained, seeded.

In:  a folder of an encoder, and what the user wants on top of it.
Out: Parts with the wanted pooling and projection; or a refusal of models that are no encoders.
"""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from sbert_core.encoder.checkpoint import Parts, has_modules, read_parts
from sbert_core.encoder.head import Dense, Normalize
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.untrusted import not_loading, read_config

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "spiece.model")
TANH = "torch.nn.modules.activation.Tanh"


def starting_parts(
    folder: Path, pooling: str | None, dense: int | None, seed: int, *, with_lengths: bool = False
) -> Parts:
    """The base model under another pooling or with a new projection, if asked for.

    with_lengths: vectors keep their lengths even if the base makes unit vectors. A softmax head
    that sees numbers of 1/sqrt(dim) learns by turning the vectors instead: from all-MiniLM-L6-v2,
    4,000 rows of NLI end at 48.8 on STSb dev with unit vectors and at 85.8 without.
    """
    refuse_decoders(folder)
    parts = read_parts(folder, None)
    layout = parts.layout
    if pooling is not None:
        layout = replace(layout, pooling=(Pooling(pooling),))
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
        width = widths[-1] if widths else parts.model.config.hidden_size * len(layout.pooling)
        head.append(Dense(nn.Linear(width, dense), TANH))
    modules = nn.ModuleList([*head, *([] if with_lengths else tail[-1:])])
    return Parts(layout, parts.model, parts.tokenizer, modules)


def refuse_decoders(folder: Path) -> None:
    """A decoder sees only what stands before a token; this system trains encoders."""
    if has_modules(folder) and not (folder / "config.json").is_file():
        return  # an encoder in a folder of its own, checked when it is read
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} holds no model (no config.json); name an encoder's folder")
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ValueError(
            f"{folder} has no tokenizer; save one beside the weights (save_pretrained)"
        )
    try:
        kind = read_config(folder).model_type
    except Exception as error:  # noqa: BLE001 - of any library, in any words
        raise not_loading(folder, error) from error
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise ValueError(f"{folder} is a decoder ({kind}); use an encoder such as BERT or RoBERTa")
