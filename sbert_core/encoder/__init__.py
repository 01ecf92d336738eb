"""Text -> tokens -> flat batches -> unit vectors."""

from sbert_core.encoder.encoder import Encoder, Precision
from sbert_core.encoder.pooling import Pooling
from sbert_core.encoder.result import Encoded, TextStatus

__all__ = ["Encoded", "Encoder", "Pooling", "Precision", "TextStatus"]
