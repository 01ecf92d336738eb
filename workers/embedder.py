"""Actor: texts -> vectors, one warm encoder, no algorithm."""

from collections.abc import Sequence

from sbert_core.encoder import Encoded, Encoder


class Embedder:
    """Holds one encoder for as long as the job runs."""

    def __init__(self, model: str) -> None:
        self.encoder = Encoder.load(model, threads=1)

    def embed(self, texts: Sequence[str]) -> Encoded:
        """Vectors of these texts and the account of them."""
        return self.encoder.encode_report(texts)
