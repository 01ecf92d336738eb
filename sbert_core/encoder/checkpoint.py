"""The sentence-transformers folder: what is in it, in and out.

In:  a folder with modules.json, or a plain Hugging Face encoder without one.
Out: a Layout (what the folder says) and its parts; or a folder sentence-transformers loads.
Gives up: modules other than Transformer, Pooling, Dense and Normalize; pickled weights; code
          that comes with a model.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers import PreTrainedTokenizerBase as HfTokenizer
from transformers.utils import logging as hf_logging

from sbert_core.encoder.head import Dense, Normalize
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.untrusted import (
    Settings,
    json_in,
    not_loading,
    read_config,
    refuse_absurd,
    require_safetensors,
)

# Older sentence-transformers named the file after the family.
SETTINGS_NAMES = [
    f"sentence_{family}_config.json"
    for family in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
LEGACY_POOLING = {
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_max_tokens": Pooling.MAX,
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": Pooling.MEAN_SQRT_LEN,
    "pooling_mode_weightedmean_tokens": Pooling.WEIGHTED_MEAN,
    "pooling_mode_lasttoken": Pooling.LAST_TOKEN,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Everything a folder says beside weights and vocabulary."""

    pooling: tuple[Pooling, ...] = (Pooling.MEAN,)
    include_prompt: bool = True
    max_length: int | None = None
    lower_case: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    truncate_dim: int | None = None
    similarity: str = "cosine"


@dataclass(frozen=True, slots=True)
class Parts:
    """A folder's contents, in memory."""

    layout: Layout
    model: PreTrainedModel
    tokenizer: HfTokenizer
    head: nn.ModuleList


def read_parts(folder: Path, pooling: Pooling | None) -> Parts:
    """Load a folder; `pooling` chooses where a plain encoder leaves the choice open."""
    modules = _modules(folder)
    if not modules:
        layout = Layout(pooling=(pooling or Pooling.MEAN,))
        return Parts(layout, *_read_transformer(folder), nn.ModuleList())
    if pooling is not None:
        raise ValueError(f"{folder} fixes its own pooling; {pooling.value!r} cannot replace it")
    if [kind for kind, _ in modules[:2]] != ["Transformer", "Pooling"]:
        found = ", ".join(kind for kind, _ in modules)
        raise ValueError(f"{folder}: modules {found}; expected Transformer, Pooling, ...")
    (_, transformer), (_, pool), *rest = modules
    layout = _read_layout(folder, transformer, pool)
    head = nn.ModuleList(HEAD_READERS[kind](path) for kind, path in rest)
    return Parts(layout, *_read_transformer(transformer), head)


def has_modules(folder: Path) -> bool:
    """Is this a sentence-transformers folder, rather than a plain encoder's?"""
    return (folder / "modules.json").is_file()


def _modules(folder: Path) -> list[tuple[str, Path]]:
    listing = json_in(folder / "modules.json", list)
    modules = [(str(m["type"]).rpartition(".")[2], folder / m["path"]) for m in listing]
    known = {"Transformer", "Pooling", *HEAD_READERS}
    for kind, path in modules:
        if ".." in path.parts or not path.is_relative_to(folder):
            raise ValueError(f"{folder}: module path {path} leaves the folder; not opened")
        if kind not in known:
            raise ValueError(
                f"{folder}: module {kind!r} is not supported; supported: {', '.join(sorted(known))}"
            )
    return modules


def _read_layout(folder: Path, transformer: Path, pool: Path) -> Layout:
    written = [transformer / name for name in SETTINGS_NAMES if (transformer / name).is_file()]
    settings = Settings(written[0] if written else transformer / SETTINGS_NAMES[0])
    shared = Settings(folder / "config_sentence_transformers.json")
    pooling = Settings(pool / "config.json")
    prompts = shared.get("prompts", dict) or {}
    if not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise ValueError(f"{shared.path}: prompts are names with texts, not {prompts!r}")
    return Layout(
        pooling=_pooling_modes(pooling.values, pool),
        include_prompt=pooling.get("include_prompt", bool) is not False,
        max_length=settings.get("max_seq_length", int),
        lower_case=settings.get("do_lower_case", bool) or False,
        prompts=prompts,
        default_prompt_name=shared.get("default_prompt_name", str),
        truncate_dim=shared.get("truncate_dim", int),
        similarity=shared.get("similarity_fn_name", str) or "cosine",
    )


def _pooling_modes(config: dict, folder: Path) -> tuple[Pooling, ...]:
    """Both spellings: one `pooling_mode`, or the older row of booleans."""
    named = config.get("pooling_mode")
    names = [named] if isinstance(named, str) else named
    if names is None:
        names = [mode for key, mode in LEGACY_POOLING.items() if config.get(key)]
    try:
        return tuple(Pooling(name) for name in names) or (Pooling.MEAN,)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}; known: {', '.join(Pooling)}") from None


def _read_transformer(folder: Path) -> tuple[PreTrainedModel, HfTokenizer]:
    model, tokenizer, missing = read_pretrained(folder, AutoModel)
    missing = [key for key in missing if not key.startswith("pooler.")]
    if missing:
        raise ValueError(
            f"{folder}: {len(missing)} weights are missing, {missing[0]} among them; "
            f"the checkpoint is not a whole {model.config.model_type} encoder"
        )
    return model, tokenizer


def read_pretrained(
    folder: Path,
    auto: Any,  # noqa: ANN401 - transformers' Auto classes share no type
    num_outputs: int | None = None,
) -> tuple[PreTrainedModel, HfTokenizer, list[str]]:
    """A model of the kind `auto` makes, its tokenizer, and the names of weights it lacks.

    num_outputs: of a classifier; a head of another size in the folder is replaced by a new one.
    """
    require_safetensors(folder)
    quiet = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        config = _checked_config(folder)
        if num_outputs is not None:
            config.num_labels = num_outputs
        model, loading = auto.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=num_outputs is not None,
        )
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - of any library, in any words
        raise not_loading(folder, error) from error
    finally:
        hf_logging.set_verbosity(quiet)
        hf_logging.enable_progress_bar()
    if hasattr(model.base_model, "set_attention_type"):
        # BigBird changes from sparse to full attention at the first short batch, and stays there:
        # vectors of long texts would follow from what the process has met before.
        model.base_model.set_attention_type("original_full")
    if not tokenizer.is_fast:
        raise ValueError(f"{folder} has no fast tokenizer; add its tokenizer.json")
    return model.eval(), tokenizer, sorted(loading["missing_keys"])


def _checked_config(folder: Path) -> PretrainedConfig:
    """The configuration, without what would fetch code or need other number formats."""
    config = read_config(folder)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{config.model_type} is an encoder-decoder; use an encoder")
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError("the weights are quantised; use the float32 or float16 original")
    refuse_absurd(config, folder)
    # A folder may name an attention kernel that transformers would download and run.
    config._attn_implementation = None
    return config


def _read_dense(folder: Path) -> Dense:
    require_safetensors(folder)
    config = json_in(folder / "config.json", dict)
    if config.get("use_residual") or config.get("module_input_name", "sentence_embedding") != (
        "sentence_embedding"
    ):
        raise ValueError(f"{folder}: a Dense module with residual or token input is not supported")
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    weights = load_file(folder / "model.safetensors")
    size = (config.get("out_features"), config.get("in_features"))
    if "linear.weight" not in weights or tuple(weights["linear.weight"].shape) != size:
        raise ValueError(f"{folder} does not load: its weights are not {size[1]} x {size[0]}")
    dense = Dense(nn.Linear(size[1], size[0], bias=config.get("bias", True)), activation)
    dense.load_state_dict({name: weight.float() for name, weight in weights.items()})
    return dense.eval()


HEAD_READERS = {"Dense": _read_dense, "Normalize": lambda folder: Normalize()}


def write_parts(parts: Parts, folder: Path, max_length: int, truncate_dim: int | None) -> None:
    """A folder that sentence-transformers, any version since 2, opens with equal vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    hf_logging.disable_progress_bar()
    parts.model.save_pretrained(folder)
    hf_logging.enable_progress_bar()
    parts.tokenizer.save_pretrained(folder)
    layout = parts.layout
    _write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": max_length, "do_lower_case": layout.lower_case},
    )
    shared: dict[str, object] = {
        "__version__": {"transformers": transformers.__version__, "pytorch": torch.__version__},
        "prompts": layout.prompts,
        "default_prompt_name": layout.default_prompt_name,
        "similarity_fn_name": layout.similarity,
    }
    if truncate_dim is not None:
        shared["truncate_dim"] = truncate_dim
    _write_json(folder / "config_sentence_transformers.json", shared)
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    _write_pooling(parts, folder / "1_Pooling")
    for number, module in enumerate(parts.head, start=2):
        kind = type(module).__name__
        modules.append((kind, f"{number}_{kind}"))
        (folder / f"{number}_{kind}").mkdir(exist_ok=True)
        if isinstance(module, Dense):
            _write_dense(module, folder / f"{number}_{kind}")
    _write_json(
        folder / "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(modules)
        ],
    )


def _write_pooling(parts: Parts, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    modes = parts.layout.pooling
    old_order = tuple(mode for mode in LEGACY_POOLING.values() if mode in modes)
    config: dict[str, object] = {"word_embedding_dimension": parts.model.config.hidden_size}
    if modes == old_order:
        config |= {key: mode in modes for key, mode in LEGACY_POOLING.items()}
    else:  # booleans cannot say another order
        config["pooling_mode"] = list(modes)
    _write_json(folder / "config.json", {**config, "include_prompt": parts.layout.include_prompt})


def _write_dense(dense: Dense, folder: Path) -> None:
    config = {
        "in_features": dense.linear.in_features,
        "out_features": dense.linear.out_features,
        "bias": dense.linear.bias is not None,
        "activation_function": dense.activation_name,
    }
    _write_json(folder / "config.json", config)
    save_file(
        {k: v.contiguous() for k, v in dense.state_dict().items()}, folder / "model.safetensors"
    )


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
