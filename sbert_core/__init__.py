"""Arithmetic and text: encoders, neighbours, clusters. Imports neither Ray nor the command line.

>>> from sbert_core import CrossEncoder, Encoder
>>> Encoder.load(encoder_folder).encode(["how many words"]).shape
(1, 32)

Both classes are loaded when they are first used: `import sbert_core` alone loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbert_core.encoder.cross_encoder import CrossEncoder
    from sbert_core.encoder.encoder import Encoder

__all__ = ["CrossEncoder", "Encoder"]

_HOMES = {
    "CrossEncoder": "sbert_core.encoder.cross_encoder",
    "Encoder": "sbert_core.encoder.encoder",
}


def __getattr__(name: str) -> object:
    """Import a public class on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
