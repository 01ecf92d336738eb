"""What a user asks of a model's lengths and sizes, checked against what it has."""

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbert_core.encoder.checkpoint import Parts
from sbert_core.encoder.flat_model import padding_idx

# Tokenizers without a limit name an astronomic one; then texts are cut at the usual length.
NO_LIMIT = 1_000_000
DEFAULT_LENGTH = 512


def checked_length(parts: Parts, wanted: int | None) -> int:
    """`wanted`, or the folder's own length, within the positions the model has."""
    limit = num_positions(parts.model)
    if wanted is not None:
        if positive("max_length", wanted) > limit:
            raise ValueError(
                f"max_length {wanted} exceeds the model's {limit} positions; "
                "use at most that, or a model made for longer texts"
            )
        return wanted
    length = min(parts.layout.max_length or tokenizer_length(parts.tokenizer), limit)
    return length if length < NO_LIMIT else DEFAULT_LENGTH


def tokenizer_length(tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens the tokenizer says a text may have."""
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


def checked_dim(own: int | None, wanted: int | None, full: int) -> int | None:
    """Dimensions to keep: those asked for, or the folder's own; None for all."""
    dim = own if wanted is None else wanted
    if dim is not None and not 1 <= dim <= full:
        raise ValueError(f"truncate_dim {dim} is not within 1..{full}")
    return None if dim == full else dim


def positive(name: str, value: object) -> int:
    """The value as a whole number from 1 up."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} is {value!r}; give a whole number from 1 up")
    return int(value)
