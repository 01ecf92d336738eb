"""Checks on model folders of any origin, before a library acts on what they contain.

In:  a folder with JSON and safetensors.
Out: its settings, of the expected types; else a ValueError that names the file and the reason.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from safetensors import safe_open
from transformers import AutoConfig, PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

Value = TypeVar("Value", str, int, bool, dict[str, Any])
Container = TypeVar("Container", dict[str, Any], list[Any])

# Sizes a library allocates memory for before it compares them with the weights.
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings",
         "type_vocab_size", "embedding_size")  # fmt: skip
LAYERS_PER_TENSOR = 10  # some models share the weights of all their layers
LONGEST_REASON = 300


@contextmanager
def wrap_load_errors(folder: Path) -> Iterator[None]:
    """Turn whatever a library raises on a broken folder into a ValueError that names it."""
    try:
        yield
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - tokenizers raise Exception itself
        raise load_error(folder, error) from error


def load_error(folder: Path, error: Exception) -> ValueError:
    """One line with the folder, the first characters of the reason, and the remedy."""
    reason = " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__
    return ValueError(f"{folder} does not load: {reason}; save or download the model again")


def read_config(folder: Path) -> PretrainedConfig:
    """The configuration in config.json. Code beside it is never run.

    Raises ValueError for a family that exists only as code in the folder.
    """
    settings = UntrustedJson(folder / "config.json")
    family = settings.get("model_type", str)
    if settings.values.get("auto_map") and family not in CONFIG_MAPPING:
        raise ValueError(
            f"{family!r} is a family with code of its own, which is never run here; use a model "
            "of a family transformers has"
        )
    config: PretrainedConfig = AutoConfig.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True
    )
    return config


def check_sizes(config: PretrainedConfig, folder: Path) -> None:
    """Raise ValueError for a size larger than all weights together.

    Such sizes would fill the memory, or build layers for hours.
    """
    shapes = weight_shapes(folder)
    numbers = sum(map(prod, shapes.values()))
    limits = dict.fromkeys(SIZES, numbers) | {"num_hidden_layers": LAYERS_PER_TENSOR * len(shapes)}
    for name, limit in limits.items():
        value = getattr(config, name, None)
        if isinstance(value, int) and value > limit:
            raise ValueError(f"config.json says {name} is {value}; the weights are {numbers}")


def weight_shapes(folder: Path) -> dict[str, list[int]]:
    """Shapes of all weights by name, from the headers of the safetensors files."""
    shapes: dict[str, list[int]] = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            names = file.keys()
            shapes |= {name: file.get_slice(name).get_shape() for name in names}
    return shapes


def require_safetensors(folder: Path) -> None:
    """Raise ValueError unless the folder's weights are safetensors files inside it."""
    for listing in folder.glob("*.safetensors.index.json"):  # of weights in several files
        names = read_json(listing, dict).get("weight_map", {}).values()
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


class UntrustedJson:
    """The values of a JSON object in a file, read by name and type; empty without the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = read_json(path, dict)

    def get(self, name: str, kind: type[Value]) -> Value | None:
        """The value under a name, None if absent; ValueError if it is of another type."""
        value = self.values.get(name)
        is_flag = isinstance(value, bool) and kind is not bool  # bool is a subclass of int
        if value is not None and (is_flag or not isinstance(value, kind)):
            raise ValueError(f"{self.path}: {name} is {value!r}; expected {kind.__name__}")
        return value


def read_json(path: Path, kind: type[Container]) -> Container:
    """The list or object in a JSON file, empty without the file.

    Raises ValueError if the file is not JSON, or holds another type.
    """
    if not path.is_file():
        return kind()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, kind):
        raise ValueError(f"{path} holds {type(found).__name__}; expected {kind.__name__}")
    return found
