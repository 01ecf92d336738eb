"""The name of a model -> a folder on this machine.

In:  a path, or `org/name` with an optional `@revision`.
Out: the folder. From the hub come settings, vocabulary and safetensors: no code, no pickle.
"""

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from sbert_core.errors import TransientError

HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
HUB_FILES_UNUSED = ["onnx/*", "openvino/*"]


def resolve_model_folder(path_or_hub_id: str | Path) -> Path:
    """The folder if it exists here, else a downloaded snapshot of `org/name[@revision]`.

    Raises ValueError if the name is neither, TransientError if the hub does not deliver it.
    """
    folder = Path(path_or_hub_id)
    if str(path_or_hub_id) and folder.is_dir():
        return folder
    match = HUB_ID.fullmatch(str(path_or_hub_id))
    if match is None:
        raise ValueError(
            f"model {str(path_or_hub_id)!r} is neither a folder here nor a hub id; "
            "give a path or org/name@revision"
        )
    try:
        return Path(
            snapshot_download(
                match["repo"],
                revision=match["revision"],
                allow_patterns=HUB_FILES,
                ignore_patterns=HUB_FILES_UNUSED,
            )
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise TransientError(
            f"model {str(path_or_hub_id)!r} is no folder here and the hub did not give it "
            f"({reason}); check the name and the network, or download it and give its folder"
        ) from error
