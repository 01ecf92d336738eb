"""The tokenizer of a model's folder, without the weights: for processes that make tokens alone.

In:  the parts of a folder, or the folder.
Out: TextTokenizer, as the encoder of that folder has it.
"""

from pathlib import Path
from typing import cast

from torch import nn

from sbert_core.encoder.checkpoint import ModelParts, read_parts
from sbert_core.encoder.limits import resolve_max_length
from sbert_core.encoder.pretrained import read_skeleton
from sbert_core.encoder.tokenizer import TextTokenizer
from sbert_core.encoder.untrusted import wrap_load_errors


def make_tokenizer(parts: ModelParts, max_length: int | None) -> TextTokenizer:
    """Tokens as the model takes them."""
    return TextTokenizer(
        parts.tokenizer,
        max_length=resolve_max_length(parts, max_length),
        vocab_size=_vocabulary_size(parts),
        lower_case=parts.config.lower_case,
    )


def _vocabulary_size(parts: ModelParts) -> int:
    """Rows of the embedding of tokens; ValueError for families that have no such table."""
    try:
        embedding = cast(nn.Embedding, parts.model.get_input_embeddings())
        return embedding.num_embeddings
    except (AttributeError, NotImplementedError):  # I-BERT, CANINE
        raise ValueError(
            f"{parts.tokenizer.name_or_path}: {parts.model.config.model_type} models have no plain "
            "embedding of tokens; use a model of another family"
        ) from None


def load_tokenizer(folder: Path, max_length: int | None = None) -> TextTokenizer:
    """The same from a folder."""
    with wrap_load_errors(folder):
        try:
            parts = read_parts(folder, None, read_skeleton)
        except ValueError:  # weights under other names: only loading shows what they become
            parts = read_parts(folder, None)
        return make_tokenizer(parts, max_length)
