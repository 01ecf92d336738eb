"""A Hugging Face folder -> model and tokenizer, without running anything that came with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers import PreTrainedTokenizerBase as HfTokenizer
from transformers.utils import logging as hf_logging

from sbert_core.encoder.untrusted import (
    check_sizes,
    load_error,
    read_config,
    require_safetensors,
    weight_shapes,
    wrap_load_errors,
)

AutoClass = type[AutoModel] | type[AutoModelForSequenceClassification]


def read_pretrained(
    folder: Path, auto: AutoClass, num_outputs: int | None = None
) -> tuple[PreTrainedModel, HfTokenizer, list[str]]:
    """A model made by `auto`, its tokenizer, and the names of weights the folder lacks.

    num_outputs: of a classifier; a head of another size in the folder is replaced by a new one.
    Raises ValueError for pickled weights, absurd sizes, and whatever a library cannot load.
    """
    require_safetensors(folder)
    try:
        with quiet_transformers():
            config = _read_checked_config(folder)
            if num_outputs is not None:
                config.num_labels = num_outputs
            model, report = auto.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=num_outputs is not None,
            )
            tokenizer = _read_tokenizer(folder)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - libraries raise anything on a broken folder
        raise load_error(folder, error) from error
    _use_full_attention(model)
    _require_fast(tokenizer, folder)
    return model.eval(), tokenizer, sorted(report["missing_keys"])


def read_skeleton(folder: Path) -> tuple[PreTrainedModel, HfTokenizer]:
    """An encoder without weights (on torch's meta device) and its tokenizer: cheap for any size.

    Raises ValueError as `read_pretrained` does, and where the names or shapes in the headers of the
    weights are not those of the model: then only loading shows whether they can be converted.
    """
    require_safetensors(folder)
    with quiet_transformers(), wrap_load_errors(folder):
        config = _read_checked_config(folder)
        with torch.device("meta"):
            model = AutoModel.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
        tokenizer = _read_tokenizer(folder)
    shapes = weight_shapes(folder)
    prefix = f"{model.base_model_prefix}."
    for name, weight in model.state_dict().items():
        found = shapes.get(name, shapes.get(prefix + name))
        if found != list(weight.shape) and not name.startswith("pooler."):
            raise ValueError(f"{folder}: the weights lack {name} of shape {list(weight.shape)}")
    _require_fast(tokenizer, folder)
    return model, tokenizer


def _read_tokenizer(folder: Path) -> HfTokenizer:
    tokenizer: HfTokenizer = AutoTokenizer.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True
    )
    return tokenizer


def _require_fast(tokenizer: HfTokenizer, folder: Path) -> None:
    if not tokenizer.is_fast:
        raise ValueError(f"{folder} has no fast tokenizer; add its tokenizer.json")


def _read_checked_config(folder: Path) -> PretrainedConfig:
    """The configuration, without settings that would fetch code or need other number formats."""
    config = read_config(folder)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{config.model_type} is an encoder-decoder; use an encoder")
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError("the weights are quantised; use the float32 or float16 original")
    check_sizes(config, folder)
    # A folder may name an attention kernel that transformers would download and run.
    config._attn_implementation = None
    return config


def _use_full_attention(model: PreTrainedModel) -> None:
    """BigBird changes from sparse to full attention at the first short batch, and stays there.

    Vectors of long texts would then depend on the batches a process has seen before.
    """
    set_attention_type = getattr(model.base_model, "set_attention_type", None)
    if set_attention_type is not None:
        set_attention_type("original_full")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No warnings and progress bars of transformers inside the block."""
    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        hf_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
