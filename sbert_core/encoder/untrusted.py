"""Model folders that may come from anywhere: what is refused before a library believes it.

In:  a folder with JSON and safetensors.
Out: its settings, of the types they should have; else one line that names the file and the reason.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open
from transformers import AutoConfig, PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

# Sizes that a library allocates for before it finds that the weights have others.
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings",
         "type_vocab_size", "embedding_size")  # fmt: skip
LAYERS_PER_TENSOR = 10  # some models share the weights of all their layers
LONGEST_REASON = 300


@contextmanager
def loading(folder: Path) -> Iterator[None]:
    """What a library makes of a broken folder, as one line that names it."""
    try:
        yield
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - tokenizers raise Exception itself
        raise not_loading(folder, error) from error


def not_loading(folder: Path, error: Exception) -> ValueError:
    reason = " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__
    return ValueError(f"{folder} does not load: {reason}; save or download the model again")


def read_config(folder: Path) -> PretrainedConfig:
    """What config.json says. Code beside it is not run, and nobody is asked whether to."""
    settings = Settings(folder / "config.json")
    family = settings.get("model_type", str)
    if settings.values.get("auto_map") and family not in CONFIG_MAPPING:
        raise ValueError(
            f"{family!r} is a family with code of its own, which is never run here; use a model "
            "of a family transformers has"
        )
    return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def refuse_absurd(config: PretrainedConfig, folder: Path) -> None:
    """Sizes beyond all weights would fill the memory, or build layers for hours."""
    tensors = numbers = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]
        tensors, numbers = tensors + len(shapes), numbers + sum(map(prod, shapes))
    limits = dict.fromkeys(SIZES, numbers) | {"num_hidden_layers": LAYERS_PER_TENSOR * tensors}
    for name, limit in limits.items():
        value = getattr(config, name, None)
        if isinstance(value, int) and value > limit:
            raise ValueError(f"config.json says {name} is {value}; the weights are {numbers}")


def require_safetensors(folder: Path) -> None:
    for listing in folder.glob("*.safetensors.index.json"):  # of weights in several files
        names = json_in(listing, dict).get("weight_map", {}).values()
        for name in names:
            if not str(name).endswith(".safetensors") or Path(name).name != name:
                raise ValueError(f"{listing} names {name!r}, no safetensors file beside it")
    if any(folder.glob("*.safetensors")):
        return
    if pickles := sorted(path.name for path in folder.glob("*.bin")):
        raise ValueError(
            f"{folder} holds only a pickle ({pickles[0]}), which can run code when opened; convert "
            "it where you trust it: load the model and save_pretrained(..., as safetensors)"
        )
    raise ValueError(f"{folder} holds no model: *.safetensors not found")


class Settings:
    """The values of a JSON file, by name and type; none of a file that is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = json_in(path, dict)

    def get(self, name: str, kind: type) -> Any:  # noqa: ANN401
        value = self.values.get(name)
        is_flag = isinstance(value, bool) and kind is not bool  # to Python a flag is a number
        if value is not None and (is_flag or not isinstance(value, kind)):
            raise ValueError(f"{self.path}: {name} is {value!r}; expected {kind.__name__}")
        return value


def json_in(path: Path, kind: type) -> Any:  # noqa: ANN401
    """Contents of a JSON file; an empty one if there is none."""
    if not path.is_file():
        return kind()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, kind):
        raise ValueError(f"{path} holds {type(found).__name__}; expected {kind.__name__}")
    return found
