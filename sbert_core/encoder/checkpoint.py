"""The sentence-transformers folder: reading and writing.

In:  a folder with modules.json, or a plain Hugging Face encoder without one.
Out: ModelParts: the folder's settings, model, tokenizer and head; or a folder that
     sentence-transformers loads.
Gives up: modules other than Transformer, Pooling, StaticEmbedding, Dense and Normalize; pickled
          weights; code that comes with a model.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel, PreTrainedModel
from transformers import PreTrainedTokenizerBase as HfTokenizer

from sbert_core.choices import Pooling
from sbert_core.encoder.head import Dense, Normalize
from sbert_core.encoder.pretrained import quiet_transformers, read_pretrained
from sbert_core.encoder.static_model import (
    StaticModel,
    is_model2vec,
    is_normalized,
    read_static,
)
from sbert_core.encoder.untrusted import UntrustedJson, read_json, require_safetensors

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


STATIC = "StaticEmbedding"
LONGEST_ENTRY = 80
OWNER = "sentence_transformers"  # the package of all modules we know

# The folder of a transformer -> its model and tokenizer.
TransformerReader = Callable[[Path], tuple[PreTrainedModel, HfTokenizer]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The settings of a sentence-transformers folder, beside weights and vocabulary.

    include_prompt: whether pooling uses the tokens of a prompt.
    similarity: name of the similarity function the folder was made for.
    """

    pooling: tuple[Pooling, ...] = (Pooling.MEAN,)
    include_prompt: bool = True
    max_length: int | None = None
    lower_case: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    truncate_dim: int | None = None
    similarity: str = "cosine"


@dataclass(frozen=True, slots=True)
class ModelParts:
    """A folder's contents, in memory. `head` holds the modules after pooling."""

    config: ModelConfig
    model: PreTrainedModel
    tokenizer: HfTokenizer
    head: nn.ModuleList


def read_parts(
    folder: Path, pooling: Pooling | None, read_transformer: TransformerReader | None = None
) -> ModelParts:
    """Load a folder. `pooling` is for plain encoders only, whose folder does not fix it.

    read_transformer: reads model and tokenizer; with all weights by default.
    Raises ValueError for pickled weights, unsupported modules and broken settings.
    """
    read_transformer = read_transformer or _read_transformer
    modules = _read_modules(folder)
    if modules and modules[0][0] == STATIC or not modules and is_model2vec(folder):
        return _read_static_parts(folder, modules, pooling)
    if not modules:
        config = ModelConfig(pooling=(pooling or Pooling.MEAN,))
        return ModelParts(config, *read_transformer(folder), nn.ModuleList())
    if pooling is not None:
        raise ValueError(f"{folder} fixes its own pooling; {pooling.value!r} cannot replace it")
    if [kind for kind, _ in modules[:2]] != ["Transformer", "Pooling"]:
        found = ", ".join(kind for kind, _ in modules)
        raise ValueError(
            f"{folder}: modules {found}; expected Transformer, Pooling, ... or {STATIC}, ..."
        )
    (_, transformer), (_, pool), *rest = modules
    config = _read_model_config(folder, transformer, pool)
    return ModelParts(config, *read_transformer(transformer), _read_head(folder, rest))


def _read_head(folder: Path, modules: list[tuple[str, Path]]) -> nn.ModuleList:
    """The modules after pooling."""
    for kind, _ in modules:
        if kind not in HEAD_READERS:
            raise ValueError(
                f"{folder}: a {kind} module cannot follow pooling; {', '.join(HEAD_READERS)} can"
            )
    return nn.ModuleList(HEAD_READERS[kind](path) for kind, path in modules)


def _read_static_parts(
    folder: Path, modules: list[tuple[str, Path]], pooling: Pooling | None
) -> ModelParts:
    if pooling is not None:
        raise ValueError(f"{folder} is a static model, which averages; use no pooling")
    place = modules[0][1] if modules else folder
    head = _read_head(folder, modules[1:])
    if not modules and is_normalized(folder):
        head.append(Normalize())
    return ModelParts(_read_shared_config(folder), *read_static(place), head)


def has_modules(folder: Path) -> bool:
    """Is this a sentence-transformers folder, rather than a plain encoder's?"""
    return (folder / "modules.json").is_file()


def is_static(folder: Path) -> bool:
    """Is this a folder of StaticEmbedding or model2vec?"""
    if not has_modules(folder):
        return is_model2vec(folder)
    first = next(iter(read_json(folder / "modules.json", list)), None)
    return isinstance(first, dict) and str(first.get("type")).endswith(f".{STATIC}")


def _read_modules(folder: Path) -> list[tuple[str, Path]]:
    """Kind and folder of each module; ValueError for kinds we do not know and foreign code."""
    known = {"Transformer", "Pooling", STATIC, *HEAD_READERS}
    modules = []
    for entry in read_json(folder / "modules.json", list):
        if not isinstance(entry, dict) or not {"type", "path"} <= entry.keys():
            found = repr(entry)[:LONGEST_ENTRY]
            raise ValueError(
                f"{folder}: modules.json lists {found}, which is no module with type and path; "
                "save or download the model again"
            )
        package, _, kind = str(entry["type"]).rpartition(".")
        path = folder / str(entry["path"])
        if ".." in path.parts or not path.is_relative_to(folder):
            raise ValueError(f"{folder}: module path {path} leaves the folder; not opened")
        # A class of another package may compute anything, whatever its name is.
        if kind not in known or package.partition(".")[0] != OWNER:
            raise ValueError(
                f"{folder}: module {entry['type']!r} is not supported; use a model made of "
                f"{', '.join(sorted(known))} of {OWNER}"
            )
        modules.append((kind, path))
    return modules


def _read_model_config(folder: Path, transformer: Path, pool: Path) -> ModelConfig:
    """The settings of a folder, its transformer and its pooling module."""
    written = [transformer / name for name in SETTINGS_NAMES if (transformer / name).is_file()]
    settings = UntrustedJson(written[0] if written else transformer / SETTINGS_NAMES[0])
    pooling = UntrustedJson(pool / "config.json")
    return replace(
        _read_shared_config(folder),
        pooling=_read_pooling(pooling.values, pool),
        include_prompt=pooling.get("include_prompt", bool) is not False,
        max_length=settings.get("max_seq_length", int),
        lower_case=settings.get("do_lower_case", bool) or False,
    )


def _read_shared_config(folder: Path) -> ModelConfig:
    """The settings that every sentence-transformers folder may have."""
    shared = UntrustedJson(folder / "config_sentence_transformers.json")
    prompts = shared.get("prompts", dict) or {}
    if not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise ValueError(f"{shared.path}: prompts are names with texts, not {prompts!r}")
    return ModelConfig(
        prompts=prompts,
        default_prompt_name=shared.get("default_prompt_name", str),
        truncate_dim=shared.get("truncate_dim", int),
        similarity=shared.get("similarity_fn_name", str) or "cosine",
    )


def _read_pooling(config: dict[str, Any], folder: Path) -> tuple[Pooling, ...]:
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


def _read_dense(folder: Path) -> Dense:
    require_safetensors(folder)
    config = read_json(folder / "config.json", dict)
    if config.get("use_residual") or config.get("module_input_name", "sentence_embedding") != (
        "sentence_embedding"
    ):
        raise ValueError(f"{folder}: a Dense module with residual or token input is not supported")
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    weights = load_file(folder / "model.safetensors")
    size = (config.get("out_features"), config.get("in_features"))
    if "linear.weight" not in weights or tuple(weights["linear.weight"].shape) != size:
        raise ValueError(f"{folder} does not load: its weights are not {size[1]} x {size[0]}")
    outputs, inputs = weights["linear.weight"].shape
    dense = Dense(nn.Linear(inputs, outputs, bias=config.get("bias", True)), activation)
    dense.load_state_dict({name: weight.float() for name, weight in weights.items()})
    return dense.eval()


def _read_normalize(folder: Path) -> Normalize:
    return Normalize()


HEAD_READERS: dict[str, Callable[[Path], nn.Module]] = {
    "Dense": _read_dense,
    "Normalize": _read_normalize,
}


def write_parts(parts: ModelParts, folder: Path, max_length: int, truncate_dim: int | None) -> None:
    """Write a folder that sentence-transformers, any version since 2, opens with equal vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    config = parts.config
    if isinstance(parts.model, StaticModel):
        parts.model.save(folder, parts.tokenizer, max_length)
        modules = [(STATIC, "")]
    else:
        with quiet_transformers():
            parts.model.save_pretrained(folder)
        parts.tokenizer.save_pretrained(folder)
        _write_json(
            folder / "sentence_bert_config.json",
            {"max_seq_length": max_length, "do_lower_case": config.lower_case},
        )
        _write_pooling(parts, folder / "1_Pooling")
        modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    shared: dict[str, object] = {
        "__version__": {"transformers": transformers.__version__, "pytorch": torch.__version__},
        "prompts": config.prompts,
        "default_prompt_name": config.default_prompt_name,
        "similarity_fn_name": config.similarity,
    }
    if truncate_dim is not None:
        shared["truncate_dim"] = truncate_dim
    _write_json(folder / "config_sentence_transformers.json", shared)
    for number, module in enumerate(parts.head, start=len(modules)):
        kind = type(module).__name__
        modules.append((kind, f"{number}_{kind}"))
        (folder / f"{number}_{kind}").mkdir(exist_ok=True)
        if isinstance(module, Dense):
            _write_dense(module, folder / f"{number}_{kind}")
    _write_json(
        folder / "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": f"{OWNER}.models.{kind}"}
            for i, (kind, path) in enumerate(modules)
        ],
    )


def _write_pooling(parts: ModelParts, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    modes = parts.config.pooling
    old_order = tuple(mode for mode in LEGACY_POOLING.values() if mode in modes)
    config: dict[str, object] = {"word_embedding_dimension": parts.model.config.hidden_size}
    if modes == old_order:
        config |= {key: mode in modes for key, mode in LEGACY_POOLING.items()}
    else:  # booleans cannot express another order
        config["pooling_mode"] = list(modes)
    _write_json(folder / "config.json", {**config, "include_prompt": parts.config.include_prompt})


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
