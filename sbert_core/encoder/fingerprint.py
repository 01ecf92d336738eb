"""Ingredients of the digests that decide which vectors may be compared (space) and reused (recipe).

In:  a model's weights and configuration.
Out: parts of `Encoder.space` and `Encoder.recipe`. Equal for a model and its saved copy.
Gives up: library versions are not ingredients; artifacts record them beside the digests.
"""

import hashlib
import re
from collections.abc import Iterable

import torch
from torch import Tensor
from transformers import PretrainedConfig

from sbert_core.digest import digest
from sbert_core.encoder.checkpoint import ModelParts

# Facts about a file, a session, training or another task: no vector depends on them.
VOLATILE_CONFIG = re.compile(
    r"_name_or_path|architectures|auto_map|(torch_)?dtype|transformers_version|use_cache"
    r"|gradient_checkpointing|id2label|label2id|problem_type|finetuning_task|tie_word_embeddings"
    r"|chunk_size_feed_forward|initializer_(range|factor)|(bos|eos|sep|cls)_token_id|return_dict"
    r"|output_\w+|\w*dropout\w*|_?attn_implementation|summary_\w+"
)


def weights_digest(weights: Iterable[tuple[str, Tensor]]) -> str:
    """sha256 of named weights, as float32 and in order of their names.

    The BERT pooler is left out: no vector of ours passes through it, and where a checkpoint
    lacks it, it is random.
    """
    total = hashlib.sha256()
    for name, weight in sorted(weights, key=lambda pair: pair[0]):
        if name.startswith("pooler."):
            continue
        values = weight.detach().to("cpu", torch.float32).contiguous()
        total.update(f"{name} {tuple(values.shape)}\n".encode())
        total.update(values.numpy().data)
    return total.hexdigest()


def architecture(config: PretrainedConfig) -> dict[str, object]:
    """The settings of a configuration that differ from its class's defaults and shape vectors."""
    changed = {**config.to_diff_dict(), "model_type": config.model_type}
    return {key: value for key, value in changed.items() if not VOLATILE_CONFIG.fullmatch(key)}


def network_digest(parts: ModelParts) -> str:
    """sha256 of the weights that make vectors: the model's and its head's."""
    head = ((f"head.{name}", weight) for name, weight in parts.head.state_dict().items())
    return weights_digest([*parts.model.state_dict().items(), *head])


def space_digest(
    parts: ModelParts,
    *,
    tokenizer: object,
    weights: str | None,
    truncate_dim: int | None,
    normalize: bool,
) -> str:
    """Digest of the space that a model's vectors lie in.

    tokenizer: its identity. weights: their digest, where the model no longer holds them as float32.
    truncate_dim, normalize: what becomes of the output of the last module.
    """
    config = parts.config
    return digest(
        {
            "weights": weights or network_digest(parts),
            "architecture": architecture(parts.model.config),
            "tokenizer": tokenizer,
            "pooling": list(config.pooling),
            "include_prompt": config.include_prompt,
            "head": [repr(module) for module in parts.head],
            "truncate_dim": truncate_dim,
            "normalize": normalize,
        }
    )
