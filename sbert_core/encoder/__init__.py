"""Text -> tokens -> flat batches -> unit vectors."""

from sbert_core.encoder.encoded import Encoded, TextStatus
from sbert_core.encoder.model import Encoder, Precision
from sbert_core.encoder.pooling import Pooling

__all__ = ["Encoded", "Encoder", "Pooling", "Precision", "TextStatus"]
