"""Lengths and dimensions a user wants, and padding, checked against what the model has."""

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbert_core.encoder.checkpoint import ModelParts
from sbert_core.encoder.flat_model import padding_idx
from sbert_core.encoder.head import Dense
from sbert_core.encoder.static_model import StaticModel

# Tokenizers without a limit state an astronomic one (1e30); then the usual length applies.
NO_LIMIT = 1_000_000
DEFAULT_LENGTH = 512


def resolve_max_length(parts: ModelParts, wanted: int | None) -> int:
    """`wanted`, or the folder's length, within the positions the model has.

    Raises ValueError if more tokens are wanted than the model has positions for.
    """
    limit = num_positions(parts.model)
    if wanted is not None:
        if require_positive("max_length", wanted) > limit:
            raise ValueError(
                f"max_length {wanted} exceeds the model's {limit} positions; "
                "use at most that, or a model made for longer texts"
            )
        return wanted
    length = min(parts.config.max_length or tokenizer_length(parts.tokenizer), limit)
    if length < NO_LIMIT:
        return length
    return NO_LIMIT if isinstance(parts.model, StaticModel) else DEFAULT_LENGTH


def tokenizer_length(tokenizer: PreTrainedTokenizerBase) -> int:
    """The tokenizer's limit of a text's tokens; ValueError if it is not a number."""
    try:
        return int(tokenizer.model_max_length)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"model_max_length of the tokenizer is {tokenizer.model_max_length!r}; give a number"
        ) from None


def num_positions(model: PreTrainedModel) -> int:
    """Tokens the model has positions for; some count them from the padding id on (RoBERTa)."""
    positions = getattr(model.config, "max_position_embeddings", None) or -1
    first = padding_idx(model.base_model)
    return positions - (0 if first is None else first + 1) if positions > 0 else NO_LIMIT


def require_pad_token(parts: ModelParts) -> None:
    """ValueError if a model whose texts are padded has no token to pad them with."""
    if parts.tokenizer.pad_token_id is None:
        raise ValueError(
            f"{parts.tokenizer.name_or_path}: texts of {parts.model.config.model_type} models are "
            "padded, and the tokenizer has no pad token; add one: tokenizer.pad_token = "
            "tokenizer.eos_token, and save it"
        )


def output_dim(parts: ModelParts) -> int:
    """Length of a vector, before truncation.

    Raises ValueError if a Dense module takes another number of inputs than it gets.
    """
    dim: int = parts.model.config.hidden_size * len(parts.config.pooling)
    for linear in (module.linear for module in parts.head if isinstance(module, Dense)):
        if linear.in_features != dim:
            raise ValueError(
                f"a Dense module takes {linear.in_features} numbers, what stands before it "
                f"gives {dim}; save the model again"
            )
        dim = linear.out_features
    return dim


def resolve_dim(default: int | None, wanted: int | None, full: int) -> int | None:
    """Dimensions to keep: `wanted`, or the folder's default; None for all.

    Raises ValueError for a number outside 1..full.
    """
    dim = default if wanted is None else wanted
    if dim is not None and not 1 <= dim <= full:
        raise ValueError(f"truncate_dim {dim} is not within 1..{full}")
    return None if dim == full else dim


def require_positive(name: str, value: object) -> int:
    """The value as an int; ValueError unless it is a whole number from 1 up."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} is {value!r}; give a whole number from 1 up")
    return int(value)
