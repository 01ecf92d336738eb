"""Text -> tokens -> flat batches -> unit vectors."""

from sbert_core.choices import Pooling
from sbert_core.encoder.device import Precision
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.result import EncodeResult, TextStatus

__all__ = ["EncodeResult", "Encoder", "Pooling", "Precision", "TextStatus"]
